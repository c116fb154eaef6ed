"""Three queues that have little in common, with the manager and without it, in virtual time."""

import importlib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("benchmarks.manager.report")


async def test_the_worst_queue_waits_less_with_the_manager_than_round_robin(report: Any) -> None:
    busy = importlib.import_module("benchmarks.manager.workload").BUSY
    assert busy.utilisation < 0.85
    plain, managed = report.compare(busy, seconds=200.0, seeds=range(3))
    assert managed.worst <= plain.worst


async def test_a_run_can_be_repeated_exactly_and_loses_no_job(report: Any) -> None:
    simulation = importlib.import_module("benchmarks.manager.simulation").Simulation
    busy = importlib.import_module("benchmarks.manager.workload").BUSY
    one, two = (simulation(busy, 30.0, 7, "manager") for _ in range(2))
    one.run()
    two.run()
    for queue, line in one.lines.items():
        assert line.waits == two.lines[queue].waits
        assert len(line.waits) == line.done == len(line.arrived.moments)
        assert min(line.waits) >= 0


async def test_the_table_has_a_row_for_each_mode(report: Any) -> None:
    busy = importlib.import_module("benchmarks.manager.workload").BUSY
    text = report.table(busy, report.compare(busy, seconds=5.0, seeds=[1]))
    assert [line.split(" | ")[0] for line in text.splitlines()[4:]] == ["| round robin", "| manager"]
