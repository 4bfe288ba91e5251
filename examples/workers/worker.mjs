const api = process.env.MUSTER_API ?? "http://127.0.0.1:8000";
const key = process.env.MUSTER_API_KEY;
const queue = "node";
const concurrency = 4;
const lease = 30; // seconds until another worker gets the task of a lost one

const handlers = {
  "text.count": async (text) => text.split(/\s+/).length,
};

const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

async function call(path, body) {
  const headers = { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
  for (;;) {
    try {
      const response = await fetch(`${api}/v1/tasks/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
      if (response.status === 204) return null;
      if (response.ok) return await response.json();
      const problem = await response.text();
      if (response.status !== 429 && response.status < 500) return { problem }; // 404, 409: the lease has ended
    } catch {
      // the API is not reachable
    }
    await sleep(1);
  }
}

async function run({ token, task, input, workflow }) {
  const beats = setInterval(async () => {
    if (await call("beat", { token, lease: `${lease}s` })) clearInterval(beats);
  }, (lease * 1000) / 3);
  let refused;
  try {
    const result = (await handlers[task](input)) ?? null;
    clearInterval(beats);
    refused = await call("complete", { token, result });
  } catch (err) {
    clearInterval(beats);
    refused = await call("fail", { token, message: String(err).slice(0, 4000) });
  }
  if (refused) console.log(`${workflow}: the result was refused: ${refused.problem}`);
}

let stopped = false;
process.on("SIGTERM", () => (stopped = true));

async function work() {
  while (!stopped) {
    const leased = await call("lease", { tasks: Object.keys(handlers), queue, lease: `${lease}s`, wait: "5s" });
    if (leased.problem) throw new Error(leased.problem);
    for (const task of leased.tasks) await run(task);
  }
}

await Promise.all(Array.from({ length: concurrency }, work));
