// A job that blocks its thread: what `time.sleep` is in a thread of Python. Run by the sandbox of mixed.cjs.

"use strict";

const { Notes } = require("./notes.cjs");

const still = new Int32Array(new SharedArrayBuffer(4));
let notes;

module.exports = async (job) => {
  const { index, seconds, shared } = job.data;
  notes = notes || new Notes(shared);
  notes.start(index);
  Atomics.wait(still, 0, 0, seconds * 1000);
  notes.end(index);
};
