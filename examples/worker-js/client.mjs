// A client and a worker for Accoda over HTTP: node 20 or later, no dependencies. Copy this file into your project.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

/** Throw it in a handler: the job goes back, after `delay` seconds. */
export class Retry extends Error { constructor(reason = "", delay = 0) { super(reason); this.delay = delay; } }
/** Throw it in a handler: the job goes to the dead letters at once, because no other run would help. */
export class Bury extends Error {}
/** What the service answers when it will not do what it was asked for; `body` has `detail` and, often, `field`. */
export class Problem extends Error {
  constructor(status, body) { super(`${status}: ${body.detail ?? body.title}`); Object.assign(this, { status, body }); }
}
// Worth another try: too slow, the same request still under way, too many requests, and whatever is the service's fault.
const isRefusal = (error) => error instanceof Problem && error.status < 500 && ![408, 409, 429].includes(error.status);

/** Call until it is answered, with longer and longer pauses. Gives up on a refusal, on `stop`, or after `seconds`. */
async function insist(what, call, { seconds = Infinity, stop, log = () => {} } = {}) {
  const end = Date.now() + seconds * 1000;
  for (let pause = 200; ; pause = Math.min(pause * 2, 10_000)) {
    try { return await call(); } catch (error) {
      if (isRefusal(error) || stop?.aborted || Date.now() > end) throw error;
      log(`accoda: cannot ${what}, trying again: ${error.cause?.message ?? error.message}`);
      await sleep(Math.random() * pause, null, { signal: stop }).catch(() => {});
    }
  }
}

export class Accoda {
  constructor(url, token) { this.url = url.replace(/\/+$/, "") + "/api/v1/"; this.token = token; }

  async call(path, body, { headers = {}, stop, seconds = 30 } = {}) {
    if (this.token) headers = { ...headers, authorization: `Bearer ${this.token}` };
    const signal = AbortSignal.any([AbortSignal.timeout(Math.ceil(seconds * 1000)), ...(stop ? [stop] : [])]);
    headers = { ...headers, "content-type": "application/json" };
    const answer = await fetch(this.url + path, { method: "POST", headers, body: JSON.stringify(body), signal });
    const text = await answer.text();
    const value = answer.headers.get("content-type")?.includes("json") ? JSON.parse(text) : { detail: text.slice(0, 200) };
    if (!answer.ok) throw new Problem(answer.status, value);
    return value;
  }

  /** One job; `options` are priority, delay, key, … The header makes it safe to repeat a request without an answer. */
  enqueue(queue, payload, options = {}) {
    const headers = { "idempotency-key": randomUUID() };
    return insist("enqueue", () => this.call("jobs", { queue, payload, ...options }, { headers }), { seconds: 30 });
  }

  /** Run `handler(payload, job)` for each job until SIGTERM or SIGINT (or `stop`), then let those that run finish. What it
   *  returns is the job's result, what it throws sends the job back. `job.signal` is aborted when the lease was lost. */
  async work(queue, handler, { concurrency = 10, lease = 60, worker, stop = signalled(), log = console.error } = {}) {
    const base = `queues/${encodeURIComponent(queue)}/`;
    const held = new Map(); // by lease, what aborts its run: ours until the service knows the outcome
    let outcomes = [], settling = Promise.resolve(), changed = () => {};

    const send = async (batch) => {
      try { // away for longer than a lease, the service has given the jobs to others: then there is nothing to insist on
        const call = () => this.call(base + "settle", { outcomes: batch });
        const { refused } = await insist("settle", call, { seconds: lease, log });
        for (const { id, why } of refused) log(`accoda: the outcome of job ${id} came too late, or twice: ${why}`);
      } catch (error) { // one outcome that cannot be used must not hold up the others: alone, it fails its own job
        if (isRefusal(error) && batch.length > 1) return Promise.all(batch.map((one) => send([one])));
        const [{ lease, do: what }] = batch;
        if (isRefusal(error) && what === "done") return send([{ lease, do: "fail", error: error.message }]);
        log(`accoda: ${batch.length} outcomes could not be settled: ${error.message}`);
      }
      for (const one of batch) held.delete(one.lease);
      changed();
    };
    const settle = (outcome) => { // what ends while a request is under way goes into the next one, all together
      if (outcomes.push(outcome) === 1) settling = settling.then(() => send(outcomes.splice(0)));
    };
    const run = async (job) => {
      const { lease } = job, abort = new AbortController();
      held.set(lease, abort);
      try {
        const result = await handler(job.payload, { ...job, signal: abort.signal });
        JSON.stringify(result); // what cannot be sent fails this job here, not the whole batch there
        settle({ lease, do: "done", result });
      } catch (error) {
        if (error instanceof Retry) settle({ lease, do: "retry", delay: error.delay, reason: error.message });
        else if (error instanceof Bury) settle({ lease, do: "bury", reason: error.message || "buried by its handler" });
        else settle({ lease, do: "fail", error: String(error?.stack ?? error).slice(0, 4000) });
      }
    };
    const beat = async () => {
      if (held.size === 0) return;
      const { refused } = await this.call(base + "extend", { leases: [...held.keys()], lease }, { seconds: lease / 3 });
      for (const { lease } of refused) held.get(lease)?.abort(new Error("the lease was lost"));
    };
    const heart = setInterval(() => beat().catch((error) => log(`accoda: cannot extend: ${error.message}`)), lease * 333);
    try {
      while (!stop.aborted) {
        const count = Math.min(concurrency, 1000) - held.size; // 1000: the most in one request
        const take = () => this.call(base + "take", { count, lease, worker, wait: 20 }, { stop });
        if (count > 0) (await insist("take", take, { stop, log })).jobs.forEach(run);
        else await new Promise((resolve) => { changed = resolve; });
      }
    } catch (error) {
      if (!stop.aborted) throw error; // a token without the scope, a queue of another kind: waiting would not help
    } finally {
      while (held.size > 0) await new Promise((resolve) => { changed = resolve; });
      clearInterval(heart);
    }
  }
}

/** Aborted by the first SIGTERM or SIGINT; a second one ends the process at once. */
export function signalled(abort = new AbortController()) {
  for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => abort.abort(new Error(name)));
  return abort.signal;
}
