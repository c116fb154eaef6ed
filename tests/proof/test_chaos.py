"""The chaos harness: a short run of it on each storage, and that it finds what is broken."""

import itertools
import random
import shutil
from pathlib import Path
from typing import NoReturn

import pytest
from proof.chaos import poison
from proof.chaos.__main__ import parser
from proof.chaos.choice import GROUPS, RARE, chosen, in_turn, kills_between, lane
from proof.chaos.figures import Spread
from proof.chaos.plan import Plan
from proof.chaos.report import Report, show
from proof.chaos.run import run
from proof.chaos.watch import Pace
from proof.servers.process import ServerMissing
from proof.servers.pytest import need

QUICK = chosen(None) - RARE - {"fsync slow", "network slow", "network delay"}  # those last for seconds


def plan(storage: str, **options: object) -> Plan:
    """A few seconds, in which as much happens as else in a minute."""
    quick = {"seconds": 4.0, "jobs": 1_500, "seed": 1, "lease": 1.0, "faults": QUICK, "longest": 6.0, "workers": 2}
    often = {"kills": 2, "server_kills": 1, "kill_every": 0.9, "mischief_every": 1.2, "server_every": 1.7}
    return Plan(storage=storage, **{**quick, **often, **options})  # type: ignore[arg-type]


async def under_fire(plan: Plan) -> Report:
    """Run it; where the server is missing, skip, or fail in CI."""
    try:
        report = await run(plan, lambda text: None)
    except ServerMissing as reason:
        missing = reason
    else:
        if report.ok:
            shutil.rmtree(report.folder)
        return report

    def complain() -> NoReturn:
        raise missing

    return need(complain)


@pytest.mark.parametrize("storage", ["sqlite", "redis", "postgres", "tarantool"])
async def test_a_storage_keeps_its_promises_under_fire(storage: str) -> None:
    report = await under_fire(plan(storage))
    assert report.ok, show(report)
    assert report.worker_kills >= 2, show(report)
    assert report.server_kills >= 1, show(report)
    assert report.jobs >= 1_500
    assert report.runs >= report.jobs - 10
    assert report.joins > 0, show(report)
    assert report.in_lanes > 0, show(report)
    assert report.held == 0
    assert set(report.promises.values()) == {0}
    assert report.hand_restarts == 0
    assert all(len(line) <= 80 for line in show(report).splitlines())


async def test_a_store_that_drops_what_it_acknowledged_is_found_out() -> None:
    report = await under_fire(plan("sqlite", faults=frozenset(), seconds=1.5, jobs=500, drops=0.2))
    shutil.rmtree(report.folder)
    assert not report.ok
    assert report.promises["lost"] > 0
    assert "VIOLATIONS" in show(report)


async def test_a_poison_job_runs_as_often_as_it_may_and_its_neighbours_are_done() -> None:
    found = await poison.run("sqlite", concurrency=2, lease=0.7)
    assert found.ok, found
    assert (found.ran, found.neighbours_done, found.processes_killed) == (2, 100, 2)
    assert "sqlite           2 of 2 yes     100" in poison.show([found])


def test_a_clock_that_runs_faster_for_a_while_is_noticed() -> None:
    steady, clock = [0], [0]
    pace = Pace(lambda: clock[0], lambda: steady[0])
    for tenths in range(100):
        steady[0] += 100_000_000
        clock[0] += 100_500_000 if 30 <= tenths < 60 else 100_000_000  # half a percent, for three seconds
        pace.look()
    assert pace.worst == pytest.approx(0.005)


def test_the_same_seed_gives_the_same_schedule() -> None:
    def schedule(seed: int) -> list[tuple[float, str]]:
        rng = random.Random(seed)
        return list(itertools.islice(lane(rng, in_turn(rng, GROUPS["points"]), 2.0), 20))

    assert schedule(1) == schedule(1) != schedule(2)
    assert {name for _, name in schedule(1)[:5]} == set(GROUPS["points"])  # each of them once in a round


def test_every_second_fault_of_a_server_is_its_death() -> None:
    names = list(itertools.islice(kills_between(random.Random(1), [*GROUPS["server"][:2], *GROUPS["network"]]), 40))
    assert names[::2] == ["server kill"] * 20
    assert all(names.count(name) == 1 for name in RARE & {*GROUPS["network"]})  # they last long: once in a run
    assert list(kills_between(random.Random(1), [])) == []


def test_faults_are_chosen_by_group_or_by_name() -> None:
    assert chosen(["kill", "torn reply"]) == {"kill", "torn reply"}
    assert chosen(["points"]) == set(GROUPS["points"])
    with pytest.raises(ValueError, match="there is no fault 'rain'"):
        chosen(["rain"])


def test_many_numbers_in_four() -> None:
    assert Spread.of(range(1, 101)) == Spread(100, 51, 100, 100)
    assert Spread.of([]).median is None


def test_every_fault_and_every_option_is_in_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "chaos.md").read_text()
    assert [name for names in GROUPS.values() for name in names if name not in page] == []
    assert [group for group in GROUPS if f"`{group}`" not in page] == []
    options = [word for action in parser()._actions for word in action.option_strings if word.startswith("--")]
    assert [option for option in options if option not in page] == ["--help", "--concurrency"]  # that one as -c
