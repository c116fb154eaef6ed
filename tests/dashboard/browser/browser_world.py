"""A world for the browser: a store, a service and a worker as processes of their own, and jobs of every kind."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from proof.servers.process import Process, wait_until
from proof.servers.pytest import need
from proof.servers.redis import RedisServer

SHOP = Path(__file__).with_name("browser_shop.py")
JOBS = "/api/v1/jobs"


class Command(Process):
    """An `accoda` command that runs until it is stopped."""

    def __init__(self, folder: Path, url: str, *words: str) -> None:
        super().__init__()
        self._shop, self._store, self._words = folder, url, words

    def environment(self) -> Mapping[str, str]:
        return environment(self._shop, self._store)

    def is_up(self) -> bool:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/health/live")
            status = connection.getresponse().status
            connection.close()
        except OSError:
            return False
        return status == 200


class Service(Command):
    """`accoda serve`."""

    def command(self) -> Sequence[str]:
        return (sys.executable, "-m", "accoda", "serve", "shop:app", "--port", str(self.port), *self._words)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class WorkerProcess(Command):
    """`accoda worker`."""

    def command(self) -> Sequence[str]:
        how = ("--metrics-port", str(self.port), "--grace", "0", "--name", "alpha", "--no-manager", "-c", "8")
        return (sys.executable, "-m", "accoda", "worker", "shop:app", *how, *self._words)


def environment(folder: Path, url: str) -> dict[str, str]:
    path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "ACCODA_URL": url}


class World:
    """One store, its service and its worker. Tests share it: each has queues, or jobs, of its own."""

    def __init__(self, storage: str, folder: Path) -> None:
        self._stack = ExitStack()
        self.storage = storage
        self.folder = folder
        self.visited: set[str] = set()  # paths of pages that browsers opened in this test
        self.driven: set[str] = set()  # paths of actions that they did
        shutil.copy(SHOP, folder / "shop.py")
        try:
            self.url = self._store(storage)
            self.tokens = {scope: self._token(scope) for scope in ("read", "admin")}
            self.service = self._stack.enter_context(Service(folder, self.url))
            self.worker = self._stack.enter_context(WorkerProcess(folder, self.url))
            self.seen = self._seed()
        except BaseException:
            self.close()
            raise

    def _store(self, storage: str) -> str:
        if storage == "sqlite":
            return f"sqlite:///{self.folder / 'jobs.db'}"
        return self._stack.enter_context(need(lambda: RedisServer("everysec"))).url

    def close(self) -> None:
        self._stack.close()

    def _token(self, scope: str) -> str:
        command = [sys.executable, "-m", "accoda", "tokens", "create", f"the-{scope}", "--scope", scope]
        made = subprocess.run(
            command, env=environment(self.folder, self.url), capture_output=True, text=True, timeout=60
        )
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    # -- what happens in it

    def api(self, method: str, path: str, body: Any = None, *, may_fail: bool = False) -> Any:
        """Ask the service's API, with all rights."""
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=30)
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Authorization": f"Bearer {self.tokens['admin']}", "Content-Type": "application/json"}
        connection.request(method, path, data, headers)
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        assert reply.status < 300 or may_fail, (method, path, reply.status, text)
        return msgspec.json.decode(text) if text else None

    def enqueue(self, queue: str, payload: Any = None, **options: Any) -> int:
        return int(self.api("POST", JOBS, {"queue": queue, "payload": payload, **options})["id"])

    def enqueue_many(self, queue: str, payloads: Sequence[Any], **options: Any) -> list[int]:
        return [self.enqueue(queue, payload, **options) for payload in payloads]

    def state(self, id: int) -> str | None:
        """Of a job; None: it is no more."""
        found: str | None = self.api("GET", f"{JOBS}/{id}", may_fail=True).get("state")
        return found

    def wait_for(self, state: str | None, *ids: int) -> None:
        wait_until(
            lambda: all(self.state(id) == state for id in ids),
            lambda: f"jobs are not {state}: { {id: self.state(id) for id in ids} }",
        )

    def _of_flow(self, id: str) -> Any:
        return self.api("GET", f"{JOBS}?queue=orders&state=dead&key={id}/charge")["items"]

    def wait_for_file(self, name: str) -> None:
        wait_until((self.folder / name).exists, lambda: f"there is no {name}")

    def mend(self, lot: str) -> None:
        """From now on the orders of a lot are paid."""
        (self.folder / f"mended-{lot}").touch()

    def open_gate(self, id: int) -> None:
        (self.folder / f"gate-{id}").touch()

    # -- what is in it from the beginning

    def _seed(self) -> dict[str, int]:
        """A job of every kind to look at, by a name for it."""
        dead = self.enqueue_many("orders", [{"n": n} for n in range(3)] + [{"n": 9, "bank": True}])
        seen = {
            "dead": dead[0],
            "done": self.enqueue("quick", {"customer": {"id": 42}}, name="A quick one"),
            "running": self.enqueue("slow"),
            "waiting": self.enqueue("parked", {"file": "part-1.csv"}, key="part-1", priority="LOW"),
            "delayed": self.enqueue("parked", {"file": "part-2.csv"}, delay=3600),
        }
        flows = [{"id": "order", "runs": True}, {"id": "failed"}, {"id": "wide", "wide": 100}]
        self.wait_for("done", *self.enqueue_many("flows", flows))
        wait_until(lambda: bool(self._of_flow("failed")), lambda: "the order did not fail")
        self.api("PATCH", "/api/v1/queues/tenants/lanes", {"limit": 1, "limits": {"zoe": 0}, "fair": True})
        for lane in ("anna", "zoe", "a long name of a tenant, with ümlauts & <signs>", "anna"):
            seen["held"] = self.enqueue("tenants", {"for": lane}, lane=lane)
        seen["in_flow"] = self._of_flow("failed")[0]["id"]
        self.enqueue("crowd", ["books", "games", "shoes"])
        self.api("POST", "/api/v1/schedules/clean-up/trigger")
        self.wait_for("dead", *dead)
        self.wait_for("done", seen["done"])
        self.wait_for("taken", seen["running"])
        return seen
