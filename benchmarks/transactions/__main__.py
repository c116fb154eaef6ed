"""`python -m benchmarks.transactions`: what a job adds to a transaction, beside what a row of one's own adds."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from proof.chaos.__main__ import tell
from proof.servers.postgres import PostgresServer
from psycopg import sql

from benchmarks.peers.environments import NotInstalled, versions
from benchmarks.transactions import django_tasks
from benchmarks.transactions.callers import CASES, VARIANTS, Opener, Sample, Variant, opened_app
from benchmarks.transactions.django_tasks import PEER, DjangoRate
from benchmarks.transactions.report import RESULT, Cost, show

COUNT = 10
"""Transactions of one kind in a row: so few that whatever else the machine does falls on all kinds alike."""
WARM = 5
"""Rounds that do not count: statements are prepared, files grow."""


class Databases:
    """New databases of one server, and new files."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._numbers = itertools.count(1)

    def new(self, engine: str) -> str:
        name = f"bench_{next(self._numbers)}"
        if engine == "sqlite":
            return f"sqlite:///{self._folder}/{name}.db"
        with psycopg.connect(self._server.url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return f"{self._server.url.rpartition('/')[0]}/{name}"


async def measure(driver: str, goes: str, opener: Opener, url: str, seconds: float) -> Cost:
    async with opened_app(goes, url) as app, opener(url, app) as sample:
        times = await in_turns(sample, seconds)
    return Cost.of(driver, goes, {variant: [each / COUNT for each in times[variant]] for variant in VARIANTS})


async def in_turns(sample: Sample, seconds: float) -> dict[Variant, list[float]]:
    times: dict[Variant, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(WARM):
        for variant in VARIANTS:
            await sample(variant, COUNT)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for variant in VARIANTS:
            times[variant].append(await sample(variant, COUNT))
    return times


def measure_django(
    databases: Databases, storage: str, rounds: int, tell: Callable[[str], None]
) -> tuple[list[DjangoRate], list[str]]:
    """Both backends, each with a database of its own; without the peer if it cannot be installed."""
    engine = "postgresql" if storage == "PostgreSQL" else "sqlite"
    jobs = databases.new("sqlite")
    options = {"url": "django://default"} if engine == "postgresql" else {"url": jobs, "outbox": True}
    backends, notes = [django_tasks.accoda(storage, options)], []
    try:
        versions(PEER)
        backends.append(django_tasks.peer(storage))
    except NotInstalled as reason:
        notes.append(f"django-tasks-db was not measured: {reason}")
    with ExitStack() as stack:
        pair = [
            (backend, stack.enter_context(django_tasks.running(backend, settings_of(databases.new(engine)))))
            for backend in backends
        ]
        return django_tasks.measure(pair, rounds, tell), notes


def settings_of(url: str) -> dict[str, object]:
    """As in `DATABASES`. An SQLite file in WAL mode, which is how Django's users are told to set it."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        options = {"init_command": "PRAGMA journal_mode = wal", "transaction_mode": "IMMEDIATE"}
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///"), "OPTIONS": options}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "HOST": parts.hostname,
        "PORT": parts.port,
        "CONN_MAX_AGE": None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transactions", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short samples, nothing saved")
    given = parser.parse_args()
    seconds, rounds = (0.5, 5) if given.quick else (10.0, 150)
    costs: list[Cost] = []
    rates: list[DjangoRate] = []
    notes: dict[str, None] = {}

    with tempfile.TemporaryDirectory() as folder, PostgresServer() as server:
        databases = Databases(server, Path(folder))
        for driver, goes, opener in CASES:
            tell(f"{driver}, {goes} …")
            url = databases.new("sqlite" if "SQLite" in goes else "postgresql")
            costs.append(asyncio.run(measure(driver, goes, opener, url, seconds)))
        for storage in ("PostgreSQL", "SQLite"):
            found, left_out = measure_django(databases, storage, rounds, tell)
            rates += found
            notes |= dict.fromkeys(left_out)
    tell("")
    if not notes:
        peer = ", ".join(f"{name} {version}" for name, version in versions(PEER).items())
        notes[f"Accoda with Django {django_tasks.versions_here()['django']}; {peer}."] = None
    print(text := show(costs, rates, list(notes)))
    if not given.quick:
        RESULT.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
