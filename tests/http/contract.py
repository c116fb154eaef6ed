"""Runs schemathesis against a service that runs: does it do what `/openapi.json` says, whatever it is sent?

    python tests/http/contract.py                       a long run by hand, in memory
    python tests/http/contract.py --store sqlite --examples 300

The suite runs a short one: `test_contract.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from msgspec import Struct
from proof.service import ServiceRunner

from accoda import App, Bury, Done
from accoda.http.options import ServiceOptions
from accoda.http.security import Security, tokens

ROOT = Path(__file__).parents[2]
SETTINGS = Path(__file__).with_name("schemathesis.toml")


class Figures(Struct):
    """What a run came to."""

    code: int
    operations: int
    cases: int
    text: str

    def __str__(self) -> str:
        return f"{self.operations} operations, {self.cases} cases, exit code {self.code}"


def make_app(url: str) -> App:
    """An app that declares one of everything."""
    app = App(url)
    app.budget("keepa", capacity=20, refill=20, per=60)
    deals = app.demand("deals")

    @deals.fetch
    async def fetch(key: str) -> int:
        return len(key)

    @app.handler("cards", secret=("card",))
    async def charge(payload: Any) -> None: ...  # the document cannot say what fits a handler

    return app


async def fill(app: App) -> None:
    """Jobs in every state, under the small numbers that a tester tries first."""
    store = app.storage
    await app.enqueue_many("emails", [{"to": str(number)} for number in range(40)], keep_for=3600)
    jobs = await store.take("emails", 30, lease=3600)
    assert not await store.settle([Bury(job.lease, f"no user {job.id}") for job in jobs[:15]])
    assert not await store.settle([Done(job.lease, result=b"\x07") for job in jobs[15:20]])
    await app.enqueue_many("reports", range(5), delay=3600)
    await app.close()


def run(service: ServiceRunner, *options: str, limit: float = 900) -> Figures:
    """Let schemathesis loose on a service.

    It reads the document from a file: of an address it would leave out the operation that serves the document.
    """
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(SETTINGS), "run"]
    around = os.environ | {"PYTHONPATH": "src", "NO_COLOR": "1"}
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "openapi.json"
        document.write_bytes(service.get("/openapi.json").body)
        words = [*command, str(document), "--url", service.url, "--continue-on-failure", *options]
        done = subprocess.run(words, cwd=ROOT, env=around, capture_output=True, text=True, timeout=limit)
    text = done.stdout + done.stderr
    return Figures(done.returncode, _number(r"Tested: (\d+)", text), _number(r"(\d+) generated", text), text)


def serve(url: str, *, guarded: bool = False) -> tuple[ServiceRunner, list[str]]:
    """A service for it, full of jobs, and with short polls, so that no request takes long; and the options to reach it.

    `guarded`: behind the guard, with a token. Two checks are left out then. `missing_required_header` takes the token
    out, and `--header` puts it in again; `ignored_auth` guesses so many tokens that the guard answers 429 instead of
    401, as it should. `test_scopes.py` asks every operation without a token, and with one of too little.
    """
    app = make_app(url)
    asyncio.run(fill(app))
    if not guarded:
        return ServiceRunner(app, ServiceOptions(system_jobs=False, max_wait=0.05)), []
    token = asyncio.run(make_token(app))
    policy = Security(rate=1e6)
    options = ServiceOptions(system_jobs=False, max_wait=0.05, policy=policy)
    without = ["--exclude-checks", "ignored_auth,missing_required_header"]
    return ServiceRunner(app, options), ["--header", f"Authorization: Bearer {token}", *without]


async def make_token(app: App) -> str:
    _, text = await tokens.create(app.storage, "contract", ["admin"], now=0)
    await app.close()
    return text


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", choices=("memory", "sqlite"), default="memory")
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--guarded", action="store_true", help="behind the guard, with a token")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = "memory://" if told.store == "memory" else f"sqlite:///{folder}/jobs.db"
        runner, options = serve(url, guarded=told.guarded)
        with runner as service:
            figures = run(service, "--max-examples", str(told.examples), *options)
    sys.stdout.write(f"{figures.text}\n{told.store}: {figures}\n")
    return figures.code


if __name__ == "__main__":
    raise SystemExit(main())
