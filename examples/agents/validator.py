"""An agent of the role validator: accepts and labels items that contain a requirement. See README.md."""
import contextlib, http.client, json, os, random, re, signal, socket, sys, threading, time, urllib.error, urllib.parse, urllib.request

ROLE = "validator"
API = os.environ.get("MUSTER_API", "http://127.0.0.1:8000")
NAME = os.environ.get("AGENT_NAME", f"{ROLE}-{socket.gethostname()}-{os.getpid()}")
KEY = {"Authorization": "Bearer " + os.environ["MUSTER_KEY"]} if os.environ.get("MUSTER_KEY") else {}

def call(path, body=None, method="POST", tries=10**9):  # retries while the API is unreachable or busy; calls are idempotent
    data, headers = None if body is None else json.dumps(body).encode(), {"Content-Type": "application/json", **KEY}
    for n in range(tries):
        try:
            request = urllib.request.Request(urllib.parse.urljoin(API, path), data, headers, method=method)
            return urllib.request.urlopen(request, timeout=60).read()
        except (OSError, http.client.HTTPException) as error:
            if getattr(error, "code", 503) < 500 and error.code != 429:
                raise
            time.sleep(random.uniform(0.5, 1) * min(2 ** min(n, 9) / 4, 10))

def heartbeat(path, holder, ended, seconds):
    with contextlib.suppress(urllib.error.HTTPError):  # 409: the assignment was reassigned
        while not ended.wait(seconds):
            call(path + "/heartbeat", holder)
    ended.set()

LABELS = {"gobd": r"gobd|invoice|accounting|bookkeeping|retention|audit|tax", "gdpr": r"gdpr|personal|privacy|consent|data subject|erase"}

def work(path, holder, a, ended):
    text = a["item"]["text"]
    labels = {name: bool(re.search(rf"\b({words})", text, re.I)) for name, words in LABELS.items()}
    result = {"verdict": "accept", "item": {"external_id": "req-" + a["idempotency_key"], "labels": labels}}
    if not re.search(r"(?i)\b(must|shall|should|may not|required?)\b", text):
        result = {"verdict": "reject", "reason": "no requirement: none of must, shall, should, may not, require"}
    if not ended.is_set():  # check this repeatedly in longer work
        call(path + "/complete", {**holder, **result, "usage": {"requests": 1, "tokens": len(text.split())}})
        print(json.dumps({"job": a["job"]["id"], "key": a["item"]["key"], "agent": holder["agent"], **result}), flush=True)

def serve(me):
    for a in json.loads(call(f"/v1/agents/{me['id']}/lease", {"wait_seconds": 25}))["assignments"]:
        path, holder, ended = "/v1/assignments/" + a["id"], {"agent": me["id"], "fence": a["fence"]}, threading.Event()
        threading.Thread(target=heartbeat, args=(path, holder, ended, me["lease_seconds"] / 3), daemon=True).start()
        try:
            work(path, holder, a, ended)
        except Exception as error:  # 404 and 409: the assignment was reassigned, or the job has ended
            if getattr(error, "code", 0) not in (404, 409):
                call(path + "/fail", {**holder, "error": repr(error)})
        finally:
            ended.set()

signal.signal(signal.SIGTERM, lambda *_: sys.exit())
while me := json.loads(call("/v1/agents", {"name": NAME, "roles": [ROLE]})):
    try:
        while True:
            serve(me)
    except urllib.error.HTTPError as error:
        if error.code not in (404, 409):  # 404: the agent is unknown; register again
            raise
    except (SystemExit, KeyboardInterrupt):
        call("/v1/agents/" + me["id"], method="DELETE", tries=1)  # other agents get its work
        sys.exit()
