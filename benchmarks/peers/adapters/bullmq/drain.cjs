// BullMQ: its Worker and its Queue over ioredis. Speaks the command line of tally.py, which says what the lines and the
// shared file mean.

"use strict";

const fs = require("node:fs");
const { Queue, Worker } = require("bullmq");
const Redis = require("ioredis").default;

const PAYLOAD = { user: 12345, template: "welcome", language: "en" };
const CHUNK = 1000;
const CALLERS = 100;
const WARM = { enqueue: 100, callers: 100, bulk: CHUNK, latency: 5, delayed: 5 };
const FOREIGN = 8; // offset of the first count of a worker that is not Python
const ARRIVED = 72; // offset of the first mark of arrival
const TIMES = 65536; // offset of the lateness of each job
const NO_RESULT = { removeOnComplete: true, removeOnFail: true };

const connect = (order) =>
  new Redis(order.url, { maxRetriesPerRequest: null, ...order.options.connection });
const unixNow = () => (performance.timeOrigin + performance.now()) / 1000;
const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const say = (what) => fs.writeSync(1, JSON.stringify(what) + "\n");

function openQueue(order) {
  const connection = connect(order);
  const queue = new Queue("bench", { connection, defaultJobOptions: NO_RESULT });
  const close = async () => {
    await queue.close();
    connection.disconnect();
  };
  return { queue, close };
}

// ---- the count of the runs

class Tally {
  constructor(order) {
    this.order = order;
    this.file = fs.openSync(order.shared, "r+");
    this.count = 0;
    this.told = true;
    this.cell = Buffer.alloc(8);
    this.arrive(1);
  }

  ran(payload) {
    if (this.order.measure !== "drain" && "index" in payload) {
      this.note(payload);
      return;
    }
    if (this.count === 0) this.gate();
    this.count += 1;
    if (this.told) {
      this.told = false; // one write for all the jobs of this turn of the loop
      setImmediate(() => this.tell());
    }
  }

  tell() {
    this.told = true;
    this.cell.writeBigUInt64LE(BigInt(this.count));
    fs.writeSync(this.file, this.cell, 0, 8, FOREIGN + 8 * this.order.number);
  }

  note(payload) {
    const late = unixNow() - ("sent" in payload ? payload.sent : payload.due);
    const place = TIMES + 8 * payload.index;
    const cell = Buffer.alloc(8);
    fs.readSync(this.file, cell, 0, 8, place);
    if (!Number.isNaN(cell.readDoubleLE())) return; // it has run before
    cell.writeDoubleLE(late);
    fs.writeSync(this.file, cell, 0, 8, place);
  }

  // All workers begin together: else the first would drain most of the store alone. The others may have found nothing
  // left, so nobody waits long for their first job.
  gate() {
    this.arrive(2);
    this.waitFor(1n, 60);
    this.waitFor(2n, 2);
  }

  arrive(state) {
    const cell = Buffer.alloc(8);
    cell.writeBigUInt64LE(BigInt(state));
    fs.writeSync(this.file, cell, 0, 8, ARRIVED + 8 * this.order.number);
  }

  waitFor(state, seconds) {
    const cells = Buffer.alloc(8 * this.order.workers);
    const end = unixNow() + seconds;
    const still = new Int32Array(new SharedArrayBuffer(4));
    for (;;) {
      fs.readSync(this.file, cells, 0, cells.length, ARRIVED);
      const there = Array.from({ length: this.order.workers }, (_, number) => cells.readBigUInt64LE(8 * number));
      if (there.every((reached) => reached >= state) || unixNow() > end) return;
      Atomics.wait(still, 0, 0, 1); // blocks this thread, and so the loop, for a millisecond
    }
  }
}

// ---- the jobs

async function fill(order) {
  const { queue, close } = openQueue(order);
  await queue.waitUntilReady();
  for (let start = 0; start < order.count; start += CHUNK) {
    await many(queue, Math.min(CHUNK, order.count - start));
  }
  await close();
}

const many = (queue, count) => queue.addBulk(Array.from({ length: count }, () => ({ name: "noop", data: PAYLOAD })));

function work(order) {
  const tally = new Tally(order);
  const noop = async (job) => tally.ran(job.data);
  const worker = new Worker("bench", noop, { connection: connect(order), ...order.options.worker });
  worker.on("error", (error) => console.error(error.message)); // without a listener it would end the process
}

// ---- the producers: each gives back how many it put in, and who called

async function callUntil(queue, count, end) {
  let done = 0;
  while (done < count && performance.now() < end) {
    await queue.add("noop", PAYLOAD);
    done += 1;
  }
  return done;
}

const RUNS = {
  enqueue: async (queue, order, end) => [await callUntil(queue, order.count, end), ""],

  callers: async (queue, order, end) => {
    const share = Math.floor(order.count / CALLERS);
    const crowd = Array.from({ length: CALLERS }, () => callUntil(queue, share, end));
    const done = await Promise.all(crowd);
    return [done.reduce((sum, each) => sum + each, 0), `${CALLERS} promises`];
  },

  bulk: async (queue, order, end) => {
    let done = 0;
    while (done < order.count && performance.now() < end) {
      const here = Math.min(CHUNK, order.count - done);
      await many(queue, here);
      done += here;
    }
    return [done, ""];
  },

  latency: async (queue, order) => {
    await sleep(0.5);
    for (let index = 0; index < order.count; index += 1) {
      await sleep(0.03 + 0.03 * Math.random());
      await queue.add("noop", { ...PAYLOAD, index, sent: unixNow() });
    }
    return [order.count, ""];
  },

  delayed: async (queue, order) => {
    const start = unixNow();
    const dues = Array.from({ length: order.count }, (_, place) => 1.5 + (3 * place) / Math.max(1, order.count - 1));
    dues.sort(() => Math.random() - 0.5);
    for (const [index, due] of dues.entries()) {
      const delay = Math.round((start + due - unixNow()) * 1000);
      await queue.add("noop", { ...PAYLOAD, index, due: start + due }, { delay });
    }
    return [order.count, ""];
  },
};

async function warmUp(what, queue) {
  if (what === "bulk") await many(queue, WARM[what]);
  else if (what === "callers") await RUNS.callers(queue, { count: WARM[what] }, Infinity);
  else await callUntil(queue, WARM[what], Infinity);
}

const lineOfInput = () => new Promise((done) => process.stdin.once("data", done));

async function produce(what, order) {
  const { queue, close } = openQueue(order);
  await warmUp(what, queue);
  say({ ready: true });
  await lineOfInput();
  process.stdin.pause();
  const before = process.cpuUsage();
  const began = performance.now();
  const [count, callers] = await RUNS[what](queue, order, order.seconds ? began + order.seconds * 1000 : Infinity);
  const seconds = (performance.now() - began) / 1000;
  const { user, system } = process.cpuUsage(before);
  say({ count, seconds, cpu: (user + system) / 1e6, callers });
  await close();
}

async function main() {
  const [what, text] = process.argv.slice(2);
  const order = { options: {}, seconds: 0, measure: "drain", number: 0, workers: 1, ...JSON.parse(text) };
  if (what === "fill") await fill(order);
  else if (what === "work") work(order);
  else await produce(what, order);
}

main().catch((error) => {
  console.error(error.stack);
  process.exit(1);
});
