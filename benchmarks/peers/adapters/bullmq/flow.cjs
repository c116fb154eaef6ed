// BullMQ's flows: a parent, which is the join, and its children. Speaks the command line of joining.py, which says what
// the lines of the notes mean. Its clock is the one of Python's time.monotonic.

"use strict";

const fs = require("node:fs");
const { FlowProducer, Worker } = require("bullmq");
const Redis = require("ioredis").default;

const QUEUE = "flows";
const WARM_FLOW = 0;
const NO_RESULT = { removeOnComplete: true, removeOnFail: true };

const connect = (order) => new Redis(order.url, { maxRetriesPerRequest: null });
const now = () => Number(process.hrtime.bigint()) / 1e9;
const say = (what) => fs.writeSync(1, JSON.stringify(what) + "\n");
const lineOfInput = () => new Promise((done) => process.stdin.once("data", done));

class Notes {
  constructor(order) {
    this.file = fs.openSync(order.notes, "a");
  }

  write(what, flow, which) {
    fs.writeSync(this.file, `${what} ${flow} ${which} ${now().toFixed(6)}\n`);
  }
}

const flowOf = (flow, members) => ({
  name: "join",
  queueName: QUEUE,
  data: { flow },
  opts: NO_RESULT,
  children: Array.from({ length: members }, (_, index) => ({
    name: "member",
    queueName: QUEUE,
    data: { flow, index },
    opts: NO_RESULT,
  })),
});

async function start(order) {
  const notes = new Notes(order);
  const connection = connect(order);
  const producer = new FlowProducer({ connection });
  await producer.waitUntilReady();
  if (order.warm) await producer.add(flowOf(WARM_FLOW, order.warm));
  say({ ready: true });
  await lineOfInput();
  process.stdin.pause();
  const begun = now();
  for (let flow = WARM_FLOW + 1; flow <= WARM_FLOW + order.flows; flow += 1) {
    notes.write("start", flow, "-");
    await producer.add(flowOf(flow, order.members));
  }
  say({ seconds: now() - begun });
  await producer.close();
  connection.disconnect();
}

function work(order) {
  const notes = new Notes(order);
  const run = async (job) => {
    const { flow, index } = job.data;
    if (job.name === "join") return notes.write("join", flow, "-");
    if (order.length) await new Promise((done) => setTimeout(done, order.length * 1000));
    notes.write("member", flow, index);
  };
  const worker = new Worker(QUEUE, run, { connection: connect(order), ...order.options.worker });
  worker.on("error", (error) => console.error(error.message)); // without a listener it would end the process
}

const [what, text] = process.argv.slice(2);
const order = { flows: 1, members: 1000, length: 0, warm: 0, options: {}, ...JSON.parse(text) };
if (what === "work") work(order);
else
  start(order).catch((error) => {
    console.error(error.stack);
    process.exit(1);
  });
