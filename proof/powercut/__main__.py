"""The command line of the power cuts."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable

from proof.powercut.growth import Growth, measure
from proof.powercut.life import MODES, MUTANTS, Findings, Plan
from proof.powercut.run import replay, run_cuts


def main() -> int:
    args = _parser().parse_args()
    if args.command == "growth":
        asyncio.run(measure(args.jobs, args.backlog, progress=_show_growth))
        _say("")
        return 0
    if args.seed is not None:
        return _replay(Plan(args.seed, args.mode or "default", args.mutant))
    modes = [args.mode] if args.mode else list(MODES)
    broken = [mode for mode in modes if not _cut(args.cuts, mode, args.mutant)]
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m proof.powercut", description=__doc__)
    parser.add_argument("command", nargs="?", choices=("cuts", "growth"), default="cuts")
    parser.add_argument("--cuts", type=int, default=2000, help="how many, in each mode")
    parser.add_argument("--mode", choices=MODES, help="one mode instead of both")
    parser.add_argument("--seed", type=int, help="one life again")
    parser.add_argument("--mutant", choices=MUTANTS, default="none", help="break it on purpose: this must be noticed")
    parser.add_argument("--jobs", type=int, default=2_000_000, help="growth: how many jobs go through")
    parser.add_argument("--backlog", type=int, default=1000, help="growth: how many wait at any time")
    return parser


def _cut(cuts: int, mode: str, mutant: str) -> bool:
    """Whether the mode keeps its word."""
    start = time.monotonic()
    found = asyncio.run(run_cuts(cuts, Plan(1, mode, mutant), _progress(cuts, mode)))
    took = time.monotonic() - start
    where = ", ".join(f"{count} {place}" for place, count in found.where.most_common())
    _say(
        f"\r{mode}: {found.cuts:,} cuts, {found.acknowledged:,} calls acknowledged, lost {found.lost:,}, "
        f"corrupt {found.corrupt}, {took:.1f} s\n"
    )
    if found.fleeting:
        _say(f"  {found.fleeting:,} rounds of takes were taken back with their holders\n")
    _say(f"  cut at: {where}\n")
    for line in found.told[:10]:
        _say(f"  {line}\n")
    if found.told:
        _say("  again: python -m proof.powercut --mode MODE --seed SEED\n")
    return not found.corrupt and not (mode == "default" and found.lost)


def _replay(plan: Plan) -> int:
    found = asyncio.run(replay(plan))
    for number, trace in enumerate(found.traces, 1):
        _say(f"cut {number}: {trace}\n")
    _say(f"{found.cuts} cuts, {found.acknowledged} calls acknowledged, lost {found.lost}, corrupt {found.corrupt}\n")
    for line in found.told:
        _say(f"{line}\n")
    return 1 if found.told else 0


def _progress(cuts: int, mode: str) -> Callable[[Findings], None]:
    def show(found: Findings) -> None:
        if sys.stdout.isatty():
            _say(f"\r{mode}: {found.cuts:,} of {cuts:,} cuts, lost {found.lost}, corrupt {found.corrupt} ")

    return show


def _show_growth(now: Growth) -> None:
    _say(
        f"\r{now.jobs:>12,} jobs   database {now.database:>12,} bytes   log {now.log:>12,} bytes   {now.seconds:.0f} s"
    )
    if not sys.stdout.isatty():
        _say("\n")


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
