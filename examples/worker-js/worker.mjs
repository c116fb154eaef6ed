// node worker.mjs: runs the jobs of one queue until SIGTERM.
//
//   ACCODA_URL    where the service is        http://127.0.0.1:8000
//   ACCODA_TOKEN  a token with the scope work (none where the service asks for none)
import { Accoda, Bury, Retry } from "./client.mjs";

const accoda = new Accoda(process.env.ACCODA_URL ?? "http://127.0.0.1:8000", process.env.ACCODA_TOKEN);

async function greet({ name, language = "en" }, job) {
  if (!name) throw new Bury("there is nobody to greet"); // no run will change that
  const words = { en: "Hello", it: "Ciao", es: "Hola" }[language];
  if (!words) throw new Retry("not learned yet", 3600);
  console.log(`${words} ${name} (job ${job.id}, run ${job.attempts + 1})`);
  return { greeting: `${words} ${name}` };
}

await accoda.work(process.env.QUEUE ?? "greetings", greet, { concurrency: 10, lease: 60 });
