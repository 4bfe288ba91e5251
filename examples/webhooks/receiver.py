"""Receives Muster webhooks, checks their signatures, and prints each event once."""
import base64, hashlib, hmac, http.server, json, os, time

KEY = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))
HOST, PORT = os.environ.get("WEBHOOK_LISTEN", "127.0.0.1:9000").rsplit(":", 1)
seen = set()  # store the ids with your data in production


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        event, at = self.headers.get("webhook-id", ""), self.headers.get("webhook-timestamp", "")
        mac = hmac.new(KEY, f"{event}.{at}.".encode() + body, hashlib.sha256).digest()
        want = "v1," + base64.b64encode(mac).decode()
        given = self.headers.get("webhook-signature", "").split()
        fresh = at.isdigit() and abs(time.time() - int(at)) < 300
        ok = fresh and any(hmac.compare_digest(want.encode(), g.encode()) for g in given)
        if ok and event not in seen:
            seen.add(event)
            message = json.loads(body)
            print(message["type"], message["data"].get("job_id", "-"), flush=True)
        self.send_response(204 if ok else 401)
        self.end_headers()

    def log_message(self, *args):
        pass


http.server.ThreadingHTTPServer((HOST, int(PORT)), Receiver).serve_forever()
