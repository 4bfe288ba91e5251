// BullMQ as a peer: single tasks and flows on Redis. Finished jobs are removed as its guide to production advises; all other
// settings are the defaults. A chain is a flow in which each job is the only child of the next one; a chord is a parent
// and its children. See peer/peer.go for the commands.

const fs = require("node:fs");
const readline = require("node:readline");
const { FlowProducer, Queue, Worker } = require("bullmq");

const slowMilliseconds = 600_000;
const napMilliseconds = 100;
const batch = 1000;
const queueName = "peer";
const opts = { removeOnComplete: { age: 3600, count: 1000 }, removeOnFail: { age: 24 * 3600 } };

const url = new URL(process.env.PEER_URL || "redis://127.0.0.1");
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
const now = () => Math.round((performance.timeOrigin + performance.now()) * 1000);

let marks;
function mark(kind, number) {
  marks ??= fs.openSync(process.env.PEER_MARKS, "a");
  fs.writeSync(marks, `${kind} ${number} ${now()}\n`);
}

async function run(job) {
  const number = job.data.number;
  switch (job.name) {
    case "slow":
      mark("slow", number);
      await new Promise((resolve) => setTimeout(resolve, slowMilliseconds));
      return;
    case "nap":
      await new Promise((resolve) => setTimeout(resolve, napMilliseconds));
      mark("nap", number);
      return;
    case "body": {
      const results = Object.keys(await job.getChildrenValues()).length;
      if (results !== job.data.members) throw new Error(`the body got ${results} results, want ${job.data.members}`);
      mark("body", number);
      return;
    }
    default:
      mark(job.name, number);
      return job.name === "single" ? undefined : number;
  }
}

async function work(concurrency) {
  const worker = new Worker(queueName, run, { connection, concurrency });
  worker.on("error", (err) => console.error(err));
  worker.on("failed", (_job, err) => console.error(err));
  await worker.waitUntilReady();
  console.log("ready");
  process.once("SIGTERM", () => worker.close(true).then(() => process.exit(0)));
}

function chain(number, steps) {
  let flow = { name: "step", queueName, data: { number }, opts };
  for (let i = 1; i < steps; i++) {
    flow = { name: "step", queueName, data: { number }, opts, children: [flow] };
  }
  return flow;
}

function chord(number, members) {
  const children = Array.from({ length: members }, () => ({ name: "member", queueName, data: { number }, opts }));
  return { name: "body", queueName, data: { number, members }, opts, children };
}

async function send(queue) {
  const flows = new FlowProducer({ connection });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [kind, number, size] = [line.split(" ")[0], ...line.split(" ").slice(1).map(Number)];
    const began = now();
    if (kind === "chain") await flows.add(chain(number, size));
    else if (kind === "chord") await flows.add(chord(number, size));
    else if (kind === "fan") await addMany(queue, "nap", 0, size);
    else await queue.add(kind, { number }, opts);
    console.log(began);
  }
}

async function timed(job) {
  const began = performance.now();
  const before = process.cpuUsage();
  await job();
  const used = process.cpuUsage(before);
  console.log((performance.now() - began) / 1000, used.user + used.system);
}

async function enqueue(queue, count) {
  for (let number = 0; number < count; number++) await queue.add("single", { number }, opts);
}

function addMany(queue, name, first, count) {
  return queue.addBulk(Array.from({ length: count }, (_, i) => ({ name, data: { number: first + i }, opts })));
}

async function bulk(queue, count) {
  for (let first = 0; first < count; first += batch) await addMany(queue, "single", first, Math.min(batch, count - first));
}

async function main() {
  const [command, count] = process.argv.slice(2);
  if (command === "version") return console.log(require("bullmq/package.json").version);
  if (command === "work") return work(Number(count));
  const queue = new Queue(queueName, { connection });
  await queue.waitUntilReady();
  if (command === "send") await send(queue);
  if (command === "enqueue") await timed(() => enqueue(queue, Number(count)));
  if (command === "bulk") await timed(() => bulk(queue, Number(count)));
  process.exit(0);
}

main();
