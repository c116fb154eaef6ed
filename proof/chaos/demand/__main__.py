"""`python -m proof.chaos.demand`: many waiters for one key while its worker is killed. Exit 1: broken."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence

from proof.chaos.__main__ import kind, tell, until_told
from proof.chaos.demand import crowd, kills, leavers
from proof.chaos.demand.crowd import Crowd
from proof.chaos.demand.kills import DELIVERING, FETCHED, FETCHING, Kills
from proof.chaos.demand.leavers import Leavers
from proof.chaos.demand.stage import STORAGES, open_place, open_stage
from proof.servers.process import ServerMissing


async def run_crowds(storage: str) -> list[tuple[str, Crowd]]:
    """With the worker there from the start, and with one that comes when all have asked."""
    found = []
    for first in (True, False):
        tell(f"{storage}: a crowd, the worker {'first' if first else 'last'}")
        async with open_place(storage) as url, open_stage(url, fetch_for=0.1) as stage:
            found.append(("first" if first else "last", await crowd.run(stage, worker_first=first)))
    return found


async def run_kills(storage: str, count: int, seed: int) -> Kills:
    async with open_place(storage) as url, open_stage(url, lease=1.0, deliver_for=0.02, batch=10) as stage:
        return await kills.run(stage, count, seed=seed, tell=lambda text: tell(f"{storage}: {text}"))


async def run_leavers(storage: str, seconds: float, seed: int) -> Leavers:
    tell(f"{storage}: people come and go")
    options = {"lease": 5.0, "fetch_for": 0.03, "fresh_for": 0.0, "keys": 20, "recorded": True}
    async with open_place(storage) as url, open_stage(url, **options) as stage:
        return await leavers.run(stage, seconds, seed=seed)


def show_crowds(found: Sequence[tuple[str, str, Crowd]]) -> list[str]:
    lines = [
        f"{crowd.WAITERS:,} requests on one key from {crowd.PROCESSES} processes; one worker.",
        "",
        "                worker  answers                   calls  served  deliveries  asked   all served",
        "storage         came    created attached cached                              in s    in s",
    ]
    return lines + [
        f"{name:<15} {when:<7} {one.answers.get('created', 0):<7} {one.answers.get('attached', 0):<8} "
        f"{one.answers.get('cached', 0):<8} {one.calls:<6} {one.served:<7} {one.deliveries:<11} {one.asked_in:<7.1f} "
        f"{one.seconds:<6.1f} {_word(one.ok)}"
        for name, when, one in found
    ]


def show_kills(found: Sequence[tuple[str, Kills]]) -> list[str]:
    lines = [
        "The same; the worker is killed while it fetches, at the fetch's end, and while it delivers.",
        "",
        "                kills                    calls  waiters  served  deliveries  served twice  second",
        "storage         fetching ending delivery         asked           in all      by the same   delivery jobs",
    ]
    return lines + [
        f"{name:<15} {one.kills.get(FETCHING, 0):<8} {one.kills.get(FETCHED, 0):<6} {one.kills.get(DELIVERING, 0):<8} "
        f"{one.calls:<6} {one.waiters:<8} {one.served:<7} {one.deliveries:<11} {one.twice:<13} {one.second_jobs:<6} "
        f"{_word(one.ok)}"
        for name, one in found
    ]


def show_leavers(found: Sequence[tuple[str, Leavers]]) -> list[str]:
    lines = [
        "People join and leave at random, from three processes; two workers.",
        "",
        "storage         joined  left   cancelled  too late  calls  served  wrong",
    ]
    for name, one in found:
        told = one.answers
        lines.append(
            f"{name:<15} {one.joined:<7} {told['left']:<6} {told['cancelled']:<10} {told['absent']:<9} {one.calls:<6} "
            f"{one.served:<7} {len(one.broken):<5} {_word(one.ok)}"
        )
        lines += one.broken[:10]
    return lines


def parser() -> argparse.ArgumentParser:
    """What may be said on the command line."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.demand", description=__doc__)
    parser.add_argument("scenario", nargs="*", help="of crowd, kills, leavers (all unless told)")
    parser.add_argument("--storage", type=kind, action="append", help=f"which (default: {', '.join(STORAGES)})")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long people come and go")
    parser.add_argument("--seed", type=int, default=0)
    return parser


async def run_all(given: argparse.Namespace) -> tuple[str, bool]:
    """The tables, and whether all is well."""
    crowds: list[tuple[str, str, Crowd]] = []
    killed: list[tuple[str, Kills]] = []
    leaving: list[tuple[str, Leavers]] = []
    missing: list[str] = []
    wanted = given.scenario or ["crowd", "kills", "leavers"]
    for storage in given.storage or STORAGES:
        try:
            if "crowd" in wanted:
                crowds += [(storage, when, one) for when, one in await run_crowds(storage)]
            if "kills" in wanted:
                killed.append((storage, await run_kills(storage, given.kills, given.seed)))
            if "leavers" in wanted:
                leaving.append((storage, await run_leavers(storage, given.seconds, given.seed)))
        except ServerMissing as reason:
            missing.append(f"{storage} is skipped: {reason}")
    shows: list[tuple[Sequence[object], Callable[[], list[str]]]] = [
        (crowds, lambda: show_crowds(crowds)),
        (killed, lambda: show_kills(killed)),
        (leaving, lambda: show_leavers(leaving)),
    ]
    lines = [line for found, show in shows if found for line in [*show(), ""]]
    good = [one.ok for _, _, one in crowds] + [one.ok for _, one in killed] + [one.ok for _, one in leaving]
    return "\n".join([*lines, *missing]).rstrip(), all(good)


def main(words: Sequence[str]) -> int:
    given = parser().parse_args(words)
    if unknown := set(given.scenario) - {"crowd", "kills", "leavers"}:
        parser().error(f"there is no {', '.join(sorted(unknown))}; choose from crowd, kills, leavers")
    try:
        text, ok = asyncio.run(until_told(run_all(given)))
    except asyncio.CancelledError:
        print("ended before its time", file=sys.stderr)
        return 2
    tell("")
    print(text, flush=True)
    return 0 if ok else 1


def _word(ok: bool) -> str:
    return "ok" if ok else "BROKEN"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
