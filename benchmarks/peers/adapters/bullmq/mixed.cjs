// BullMQ at mixed work: `concurrency` is its slots. Speaks the command line of timed.py. Blocking jobs ("def") run in
// a sandbox of worker threads, blocking.cjs, as its documentation says for code that keeps the loop.

"use strict";

const path = require("node:path");
const { Queue, Worker } = require("bullmq");
const Redis = require("ioredis").default;
const { Notes } = require("./notes.cjs");

const CHUNK = 500;
const connect = (order) => new Redis(order.url, { maxRetriesPerRequest: null });

async function fill(order) {
  const connection = connect(order);
  const queue = new Queue("mixed", { connection, defaultJobOptions: { removeOnComplete: true, removeOnFail: true } });
  await queue.waitUntilReady();
  const all = order.lengths.map((seconds, index) => ({ index, seconds, shared: order.shared }));
  for (let start = 0; start < all.length; start += CHUNK) {
    await queue.addBulk(all.slice(start, start + CHUNK).map((data) => ({ name: "mixed", data })));
  }
  await queue.close();
  connection.disconnect();
}

function work(order) {
  const notes = new Notes(order.shared);
  const mixed = async (job) => {
    notes.start(job.data.index);
    await new Promise((done) => setTimeout(done, job.data.seconds * 1000));
    notes.end(job.data.index);
  };
  const blocking = order.how === "def";
  const worker = new Worker("mixed", blocking ? path.join(__dirname, "blocking.cjs") : mixed, {
    connection: connect(order),
    concurrency: order.slots,
    useWorkerThreads: blocking,
  });
  worker.on("error", (error) => console.error(error.message)); // without a listener it would end the process
}

const [what, text] = process.argv.slice(2);
const order = JSON.parse(text);
if (what === "work") work(order);
else
  fill(order).catch((error) => {
    console.error(error.stack);
    process.exit(1);
  });
