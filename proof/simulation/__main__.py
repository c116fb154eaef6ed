"""python -m proof.simulation: run seeds, and stop at the first that fails."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from msgspec import Struct

from proof.simulation import BREAKS, FAULTS, Plan, Result, simulate


class Totals(Struct):
    """What all seeds of a run came to."""

    seeds: int = 0
    operations: int = 0
    calls: int = 0
    kills: int = 0
    pauses: int = 0
    lost: int = 0
    flows: int = 0
    joins: int = 0
    in_lanes: int = 0
    seconds: float = 0.0

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.operations += result.operations
        self.calls += result.calls
        self.kills += result.kills
        self.pauses += result.pauses
        self.lost += result.lost_requests + result.lost_answers
        self.flows += result.flows
        self.joins += result.joins
        self.in_lanes += result.in_lanes
        self.seconds += result.seconds


def main(arguments: list[str] | None = None) -> int:
    """0: every seed held; 1: one failed, and how to run it again is printed."""
    given = _parser().parse_args(arguments)
    plan = Plan(jobs=given.jobs, faults=given.faults, broken=given.broken)
    if given.seed is not None:
        return _one(given.seed, plan, given.trace)
    return _many(given, plan)


def _one(seed: int, plan: Plan, trace: str | None) -> int:
    with ExitStack() as stack:
        file = stack.enter_context(Path(trace).open("w", encoding="utf-8")) if trace else None
        result = simulate(seed, plan, file)
    _say(
        f"seed {seed}: {result.operations:,} operations in {result.calls:,} calls, {result.steps:,} steps, "
        f"{result.flows} flows with {result.joins} joins, {result.in_lanes} jobs of lanes, "
        f"{result.seconds:.0f} virtual seconds; trace {result.digest}"
    )
    _say(f"faults: {', '.join(result.faults) or 'none'}")
    return _verdict(result, plan)


def _many(given: argparse.Namespace, plan: Plan) -> int:
    totals, began, busy, told = Totals(), time.perf_counter(), time.process_time(), 0.0
    operations, seconds = given.operations or math.inf, (given.minutes or math.inf) * 60
    for seed in given.seeds:
        if totals.operations >= operations or time.perf_counter() - began >= seconds:
            break
        result = simulate(seed, plan)
        totals.add(result)
        if not result.ok:
            return _verdict(result, plan)
        passed = time.perf_counter() - began
        if passed - told > 2:
            told = passed
            rate = totals.operations / passed
            _say(f"{totals.seeds:,} seeds, {totals.operations:,} operations, {rate:,.0f} a second")
    passed, busy = time.perf_counter() - began, time.process_time() - busy
    _say(
        f"{totals.operations:,} operations ({totals.calls:,} calls) of {totals.seeds:,} seeds in {passed:.1f} s: "
        f"{totals.operations / passed:,.0f} a second ({totals.operations / busy:,.0f} in a second of processor time)"
    )
    _say(
        f"{totals.seconds:,.0f} virtual seconds, {totals.kills:,} kills, {totals.pauses:,} stops, "
        f"{totals.lost:,} lost messages, {totals.flows:,} flows with {totals.joins:,} joins, "
        f"{totals.in_lanes:,} jobs of lanes, 0 violations"
    )
    return 0


def _verdict(result: Result, plan: Plan) -> int:
    if result.ok:
        _say("no violation")
        return 0
    _say(f"seed {result.seed} FAILED, trace {result.digest}: {len(result.violations)} violations")
    for text in result.violations[:20]:
        _say(f"  {text}")
    _say("run it again, with every step written down:")
    _say(f"  {replay(result.seed, plan)} --trace trace.txt")
    return 1


def replay(seed: int, plan: Plan) -> str:
    """The command that runs a seed again."""
    command = f"python -m proof.simulation --seed {seed}"
    default = Plan()
    if plan.jobs != default.jobs:
        command += f" --jobs {plan.jobs}"
    if plan.faults != default.faults:
        command += f" --faults {','.join(plan.faults) or 'none'}"
    return command + (f" --break {plan.broken}" if plan.broken else "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof.simulation", description=__doc__)
    parser.add_argument("--seeds", type=_range, default=count(), metavar="A-B", help="these seeds; A-: from A on (0-)")
    parser.add_argument("--operations", type=int, metavar="N", help="stop after so many operations")
    parser.add_argument("--minutes", type=float, metavar="N", help="stop after so many minutes")
    parser.add_argument("--seed", type=int, help="only this one, and tell about it")
    parser.add_argument("--trace", metavar="FILE", help="with --seed: write down every step")
    parser.add_argument("--jobs", type=int, default=Plan().jobs, help="jobs enqueued in each seed (%(default)s)")
    parser.add_argument("--faults", type=_faults, default=FAULTS, help=f"some of {','.join(FAULTS)}, or none")
    parser.add_argument("--break", dest="broken", default="", choices=("", *BREAKS), metavar="NAME", help=_breaks())
    return parser


def _breaks() -> str:
    return "break a promise on purpose: " + "; ".join(f"{name} ({broken.what})" for name, broken in BREAKS.items())


def _range(text: str) -> range | Iterator[int]:
    first, dash, last = text.partition("-")
    try:
        if not dash:
            return range(int(first), int(first) + 1)
        return range(int(first), int(last) + 1) if last else count(int(first))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no range of seeds; write 7, 0-99 or 100-") from None


def _faults(text: str) -> tuple[str, ...]:
    chosen = tuple(word for word in text.split(",") if word and word != "none")
    unknown = [word for word in chosen if word not in FAULTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no fault {unknown[0]!r}; use {', '.join(FAULTS)}, or none")
    return chosen


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
