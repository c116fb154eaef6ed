// The worker of the tests: writes down each run before it ends. node work_counts.mjs CLIENT URL QUEUE JOURNAL
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const [client, url, queue, journal] = process.argv.slice(2);
const { Accoda, Bury, Retry } = await import(client);

async function handle(payload, job) {
  appendFileSync(`${journal}.begun`, `${job.id}\n`);
  await sleep(payload.ms ?? 2 + (job.id % 20));
  if (job.signal.aborted) return;
  appendFileSync(journal, `${job.id} ${job.attempts}\n`);
  if (payload.do === "bury") throw new Bury("no use");
  if (payload.do === "retry" && job.attempts === 0) throw new Retry("once more", 0);
  if (payload.do === "throw") throw new TypeError("broken");
  if (payload.do === "huge") return "x".repeat(2_000_000);
  if (payload.do === "big") return 10n;
  return { ran: job.id };
}

await new Accoda(url).work(queue, handle, { concurrency: 20, lease: 2, worker: "counts" });
