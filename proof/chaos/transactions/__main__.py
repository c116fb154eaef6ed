"""`python -m proof.chaos.transactions`: SIGKILL between a write and its commit, and in a relay. Exit 1: broken."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from proof.chaos.__main__ import tell, until_told
from proof.chaos.transactions import kills, relays
from proof.chaos.transactions.cases import CASES, IN_SQLITE, Case, running_servers
from proof.chaos.transactions.kills import Found
from proof.chaos.transactions.processes import open_forks
from proof.servers.process import ServerMissing


def show(found: Sequence[Found]) -> str:
    head = (
        "driver                   store                     transactions kills committed  orders   jobs missing extra\n"
        "                                                                    by then"
    )
    lines = [head]
    for one in found:
        after = "" if one.after is None else one.after
        lines.append(
            f"{one.case.driver:<24} {one.case.store:<25} {one.written:>12,} {one.kills:>5} {after:>9} "
            f"{one.committed:>7,} {one.jobs:>6,} {len(one.missing):>7} {len(one.extra):>5}  "
            f"{'ok' if one.ok else 'BROKEN'}"
        )
        if not one.ok:
            lines.append(
                f"  missing {list(one.missing)[:10]}, extra {list(one.extra)[:10]}, out of order {one.disordered}"
            )
    return "\n".join(lines)


async def run_all(given: argparse.Namespace) -> list[Found]:
    found: list[Found] = []
    with tempfile.TemporaryDirectory(prefix="accoda-transactions-") as name, running_servers(Path(name)) as servers:
        async with open_forks(Path(name)) as forks:
            for case in chosen(given.only, broken=given.broken):
                tell(f"{case}: {given.kills} kills")
                place = servers.new_place(case)
                found.append(await kills.run(case, place, forks, given.kills, seed=given.seed, broken=given.broken))
            for case in relays.CASES if not given.only or "relay" in given.only else ():
                tell(f"{case}: {given.kills} kills of relays")
                place = servers.new_place(case)
                found.append(await relays.run(case, place, forks, given.kills, jobs=given.jobs, seed=given.seed))
    return found


def chosen(only: Sequence[str], *, broken: bool = False) -> list[Case]:
    """In SQLite nobody can enqueue beside a transaction that has written, so that cannot be got wrong there."""
    cases = [case for case in CASES if not only or case.driver in only]
    return [case for case in cases if case.store != IN_SQLITE] if broken else cases


def parser() -> argparse.ArgumentParser:
    """What may be said on the command line."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.transactions", description=__doc__)
    drivers = dict.fromkeys(case.driver for case in CASES)
    parser.add_argument("only", nargs="*", help=f"of {', '.join(drivers)}, relay (all unless told)")
    parser.add_argument("--kills", type=int, default=20, help="of each")
    parser.add_argument("--jobs", type=int, default=relays.JOBS, help="that are relayed, at least")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--broken", action="store_true", help="enqueue without connection=: the check must notice")
    return parser


def main(words: Sequence[str]) -> int:
    given = parser().parse_args(words)
    if unknown := set(given.only) - {case.driver for case in CASES} - {"relay"}:
        parser().error(f"there is no {', '.join(sorted(unknown))}")
    try:
        found = asyncio.run(until_told(run_all(given)))
    except asyncio.CancelledError:
        print("ended before its time", file=sys.stderr)
        return 2
    except ServerMissing as reason:
        print(f"nothing was run: {reason}", file=sys.stderr)
        return 2
    tell("")
    print(show(found), flush=True)
    return 0 if all(one.ok for one in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
