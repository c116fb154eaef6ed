"""`python -m proof.chaos --storage redis --minutes 5 --seed 7`: faults on real processes, and a verdict (exit code)."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from proof.chaos import poison
from proof.chaos.choice import GROUPS, chosen
from proof.chaos.faults import KINDS
from proof.chaos.plan import Plan
from proof.chaos.report import save, show
from proof.chaos.run import run
from proof.servers.process import ServerMissing

T = TypeVar("T")


class Progress:
    """Progress, on a line that a terminal overwrites; into a file, a line now and then."""

    every = 15.0

    def __init__(self) -> None:
        self._told_at = 0.0

    def __call__(self, text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{text[:79]:<79}\r", end="", file=sys.stderr, flush=True)
        elif text and time.monotonic() - self._told_at > self.every:
            self._told_at = time.monotonic()
            print(text, file=sys.stderr, flush=True)


tell = Progress()


def kind(word: str) -> str:
    """A storage's name as a user may write it: as in its URL, or with a dash."""
    name = {"postgresql": "postgres"}.get(word, word).replace("+", "-")
    if name not in KINDS:
        raise argparse.ArgumentTypeError(f"there is no storage {word!r}; there are {', '.join(KINDS)}")
    return name


def faults(words: str) -> frozenset[str]:
    """Groups and names of faults, with commas."""
    try:
        return chosen(word.strip() for word in words.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parser() -> argparse.ArgumentParser:
    """What may be said on the command line."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos", description=__doc__)
    parser.add_argument("scenario", nargs="?", choices=["fire", "poison"], default="fire")
    parser.add_argument("--storage", type=kind, action="append", help="which (default: redis; poison: all)")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, help="default: a random one, which is printed")
    parser.add_argument("--jobs", type=int, help="how many must be done (default: 40,000 for each minute)")
    parser.add_argument(
        "--faults", type=faults, default=chosen(None), help=f"a list with commas (default: all of {','.join(GROUPS)})"
    )
    parser.add_argument("-c", "--concurrency", type=int, default=2, help="poison: processors in each process")
    parser.add_argument("--keep", action="store_true", help="keep the files of a run without violations, too")
    return parser


def plan_of(given: argparse.Namespace, storage: str) -> Plan:
    return Plan(
        storage=storage,
        seconds=given.minutes * 60,
        seed=given.seed if given.seed is not None else random.SystemRandom().randrange(1 << 32),
        jobs=given.jobs if given.jobs is not None else round(40_000 * given.minutes),
        kills=round(20 * given.minutes),
        server_kills=round(4 * given.minutes),
        faults=given.faults,
    )


async def until_told(work: Coroutine[Any, Any, T]) -> T:
    """SIGTERM ends it as Ctrl-C does: servers and processes are not left behind."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def fire(given: argparse.Namespace, storage: str) -> bool:
    plan = plan_of(given, storage)
    print(f"{storage}: {plan.seconds:.0f} s, {plan.jobs:,} jobs, seed {plan.seed}", flush=True)
    report = asyncio.run(until_told(run(plan, tell)))
    tell("")
    print(show(report), flush=True)
    print(f"also in {os.path.relpath(save(report))}", flush=True)
    if report.ok and not given.keep:
        shutil.rmtree(report.folder, ignore_errors=True)
    return report.ok


def main(words: Sequence[str]) -> int:
    given = parser().parse_args(words)
    try:
        if given.scenario == "poison":
            return 0 if poison.main(given.storage or list(KINDS), given.concurrency, tell) else 1
        broken = [storage for storage in given.storage or ["redis"] if not fire(given, storage)]
        return 1 if broken else 0
    except asyncio.CancelledError:
        print("ended before its time", file=sys.stderr)
        return 2
    except ServerMissing as missing:
        print(f"cannot be run here: {missing}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
