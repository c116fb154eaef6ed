"""Runs scenarios with several seeds, and prints what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import get_args

from benchmarks.manager.simulation import Mode, Simulation
from benchmarks.manager.workload import Scenario

MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class Result:
    """Medians over the seeds, in seconds: each queue's 95th percentile wait, the worst of them, and the mean wait.

    The mean is over the queues' means, so that the many short jobs do not outvote the few long ones.
    """

    mode: Mode
    waits: dict[str, float]
    worst: float
    mean: float
    changes: float


def compare(scenario: Scenario, seconds: float, seeds: Iterable[int], modes: Sequence[Mode] = MODES) -> list[Result]:
    """The same jobs under each mode."""
    seeds = list(seeds)
    return [_result(mode, [_run(scenario, seconds, seed, mode) for seed in seeds]) for mode in modes]


def _run(scenario: Scenario, seconds: float, seed: int, mode: Mode) -> Simulation:
    simulation = Simulation(scenario, seconds, seed, mode)
    simulation.run()
    return simulation


def _result(mode: Mode, runs: list[Simulation]) -> Result:
    waits = [{queue: _p95(line.waits) for queue, line in run.lines.items()} for run in runs]
    means = [[sum(line.waits) / max(1, len(line.waits)) for line in run.lines.values()] for run in runs]
    return Result(
        mode,
        {queue: median(each[queue] for each in waits) for queue in waits[0]},
        worst=median(max(each.values()) for each in waits),
        mean=median(sum(each) / len(each) for each in means),
        changes=median(run.manager.changes if run.manager else 0 for run in runs),
    )


def _p95(waits: list[float]) -> float:
    return sorted(waits)[int(len(waits) * 0.95)] if waits else 0.0


def table(scenario: Scenario, results: Iterable[Result]) -> str:
    """As Markdown."""
    queues = [load.queue for load in scenario.loads]
    lines = [
        f"**{scenario.name}** (utilisation {scenario.utilisation:.0%})",
        "",
        f"| | {' | '.join(queues)} | worst queue | mean wait | changes |",
        "| --- |" + " ---: |" * (len(queues) + 3),
    ]
    for result in results:
        waits = " | ".join(f"{result.waits[queue]:.1f}" for queue in queues)
        row = f"| {result.mode} | {waits} | **{result.worst:.1f}** | {result.mean:.2f} | {result.changes:g} |"
        lines.append(row)
    return "\n".join(lines) + "\n"
