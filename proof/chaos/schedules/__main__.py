"""`python -m proof.chaos.schedules --ticks 200 --every 1 --storage sqlite`: one job for each tick. Exit 1: broken."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from proof.chaos.__main__ import kind, tell, until_told
from proof.chaos.demand.stage import STORAGES, open_place
from proof.chaos.schedules.run import Orders, Verdict, run
from proof.servers.process import ServerMissing


def parser() -> argparse.ArgumentParser:
    """What may be said on the command line."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.schedules", description=__doc__)
    parser.add_argument("--storage", type=kind, action="append", help=f"which (default: all of {', '.join(STORAGES)})")
    parser.add_argument("--ticks", type=int, default=200)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two ticks")
    parser.add_argument(
        "--lease", type=float, default=2.0, help="seconds until the tick of a dead scheduler comes back"
    )
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two kills, on average")
    parser.add_argument("--doom", type=float, default=0.1, help="how likely a scheduler dies in the middle of a tick")
    parser.add_argument("--seed", type=int, default=0)
    return parser


async def run_on(storage: str, given: argparse.Namespace) -> Verdict:
    orders = Orders(
        ticks=given.ticks, every=given.every, lease=given.lease, pause=given.pause, doom=given.doom, seed=given.seed
    )
    with tempfile.TemporaryDirectory(prefix="accoda-schedules-") as folder:
        errors = Path(folder) / "errors"
        async with open_place(storage) as url:
            verdict = await run(url, orders, errors, lambda text: tell(f"{storage}: {text}"))
        if not verdict.ok and errors.exists():
            print(errors.read_text()[-4000:], file=sys.stderr)
        return verdict


async def run_all(given: argparse.Namespace) -> bool:
    good = True
    for storage in given.storage or STORAGES:
        try:
            verdict = await run_on(storage, given)
        except ServerMissing as reason:
            print(f"{storage} is skipped: {reason}", flush=True)
            continue
        tell("")
        print(f"{storage}: {verdict}", flush=True)
        good = good and verdict.ok
    return good


def main(words: Sequence[str]) -> int:
    try:
        return 0 if asyncio.run(until_told(run_all(parser().parse_args(words)))) else 1
    except asyncio.CancelledError:
        print("ended before its time", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
