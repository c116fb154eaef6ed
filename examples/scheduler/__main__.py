"""`python -m examples.scheduler`: jobs with priorities and start times over HTTP, and what is stored. Ends by itself.

On a Redis server of its own if there is one to start, else on an SQLite file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from .store import Store, redis_store, sqlite_store

APP = "examples.scheduler.app:app"
JOBS = "/jobs"
"""Where jobs are created; `/api/v1/jobs` is the same. No queue is named: a type has its handler in one."""
STARTS_IN = 3.0
"""Seconds until the scheduled report may start."""


@contextmanager
def program(store: Store, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run `accoda …` on the store until the end of the block."""
    print(f"$ ACCODA_URL='{store.url}' accoda {' '.join(words)} &")
    environment = {**os.environ, "ACCODA_URL": store.url, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "accoda", *words]
    out = subprocess.PIPE if words[0] == "serve" else None
    with subprocess.Popen(command, env=environment, stdout=out, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


class Client:
    """Makes requests, and shows them as curl would make them."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        assert server.stdout is not None
        line = server.stdout.readline()  # "Accoda serves http://…:43685 (docs: …"
        if "http://" not in line:
            raise SystemExit("examples.scheduler: the HTTP service did not start; pip install 'accoda[http]'")
        self.url = "http://" + line.split("http://")[1].split()[0]

    def post(self, body: dict[str, Any]) -> Any:
        text = json.dumps(body)
        print(f"$ curl -s {self.url}{JOBS} -H 'Content-Type: application/json' \\\n    -d '{text}'")
        return self._ask(urllib.request.Request(self.url + JOBS, text.encode(), {"Content-Type": "application/json"}))

    def get(self, path: str) -> Any:
        print(f"$ curl -s '{self.url}{path}'")
        return self._ask(urllib.request.Request(self.url + path))

    def _ask(self, request: urllib.request.Request) -> Any:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                body = json.load(answer)
        except urllib.error.HTTPError as error:
            body = json.load(error)
        return body


def new_job(name: str, priority: str, type: str, payload: dict[str, str], **more: str) -> dict[str, Any]:
    return {"name": name, "type": type, "payload": payload, "priority": priority, **more}


def enqueue(client: Client) -> int:
    """Three jobs of different priority, one of them twice, one that cannot succeed and one for later: its id."""
    for name, priority in (("nightly", "LOW"), ("alarm", "CRITICAL"), ("digest", "HIGH")):
        email = new_job(name, priority, "email.send", {"to": f"{name}@home.example"}, key=f"job-{name}")
        print(json.dumps(client.post(email)))
    print("\nThe same key again: it is the same job, and no second one is stored.")
    print(json.dumps(client.post(new_job("alarm", "LOW", "email.send", {"to": "x"}, key="job-alarm"))))
    print("\nOne that will fail for good, and one that is to start in three seconds:")
    print(json.dumps(client.post(new_job("typo", "NORMAL", "email.send", {"to": "nobody"}))))
    at = datetime.now(UTC) + timedelta(seconds=STARTS_IN)
    report = new_job(
        "Scheduled Report", "NORMAL", "report.generate", {"reportId": "monthly"}, scheduledAt=at.isoformat()
    )
    answer = client.post(report)
    print(json.dumps(answer))
    return int(answer["id"])


def counts(client: Client) -> None:
    queue = client.get("/api/v1/queues/queue")
    print(", ".join(f"{name} {queue[name]}" for name in ("ready", "delayed", "taken", "dead", "done")))


def run(store: Store) -> None:
    with ExitStack() as stack:
        client = Client(stack.enter_context(program(store, "serve", APP, "--port", "0")))
        print("\nNo worker runs yet. Three jobs of different priority:")
        report = enqueue(client)
        print("\nWhat is stored: those that are ready, in the order in which they will run, and those that are not.")
        store.show("ZRANGE", "ready", "0", "-1", "WITHSCORES")
        store.show("ZRANGE", "delayed", "0", "-1", "WITHSCORES")
        store.show("ZCARD", "delayed")
        counts(client)
        print("\nA worker runs CRITICAL, HIGH, NORMAL, LOW, and the report at its time:")
        began = time.monotonic()
        stack.enter_context(program(store, "worker", APP, "--log-level", "error"))
        print(json.dumps(client.get(f"/api/v1/jobs/{report}/result?wait=30")))
        print(f"(after {time.monotonic() - began:.1f} s)\n\nThe dead letter says why:")
        dead = client.get("/api/v1/jobs?queue=queue&state=dead")["items"]
        print("\n".join(f"job {job['id']} ({job['name']}): {job['reason']}" for job in dead))
        store.show("ZCARD", "dead")
        counts(client)


def main() -> None:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # the worker prints to the same place
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        run(redis_store(folder, stack) or sqlite_store(folder))


if __name__ == "__main__":
    main()
