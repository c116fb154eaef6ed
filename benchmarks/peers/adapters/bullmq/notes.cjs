// The file of starts and ends, as timed.py has it: three floats for each job. Its clock is the one of Python's
// time.monotonic.

"use strict";

const fs = require("node:fs");

const FLOATS = 24; // bytes of a job
const [START, END, RUNS] = [0, 8, 16];
const now = () => Number(process.hrtime.bigint()) / 1e9;

class Notes {
  constructor(shared) {
    this.file = fs.openSync(shared, "r+");
    this.cell = Buffer.alloc(8);
  }

  start(index) {
    const place = FLOATS * index;
    fs.readSync(this.file, this.cell, 0, 8, place + RUNS);
    this.write(place + RUNS, this.cell.readDoubleLE() + 1);
    this.write(place + START, now());
  }

  end(index) {
    this.write(FLOATS * index + END, now());
  }

  write(place, value) {
    this.cell.writeDoubleLE(value);
    fs.writeSync(this.file, this.cell, 0, 8, place);
  }
}

module.exports = { Notes };
