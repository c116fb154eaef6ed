"""The mixed workload: its best schedule, what jobs note of themselves, the verdict, and a run with real workers."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "peers" / "adapters"))

import timed
from benchmarks.mixed.__main__ import COMPARISON
from benchmarks.mixed.catalogue import ENTRIES, MEASURES, PARTS
from benchmarks.mixed.measures import MEASURES as FUNCTIONS
from benchmarks.mixed.measures import WORDS, Bench, Sample, Work, perform
from benchmarks.mixed.notes import Notes
from benchmarks.mixed.report import save, text
from benchmarks.mixed.verdict import verdict
from benchmarks.mixed.workload import Run, ideal, mixed_lengths, most_at_once, repeated, span
from benchmarks.peers.environments import ADAPTERS, PACKAGES
from benchmarks.peers.findings import Entry, Measured, Section
from benchmarks.peers.journal import Plan
from benchmarks.peers.stores import PLACES
from tests.benchmarks.drawn import words_in_both

# ---- the best schedule


def test_the_jobs_are_the_same_in_each_run_and_one_in_twenty_is_long() -> None:
    lengths = mixed_lengths(1500)
    assert lengths == mixed_lengths(1500)
    assert (lengths.count(1.0), lengths.count(0.02)) == (75, 1425)
    assert 1.0 in lengths[:100], "shuffled"


@pytest.mark.parametrize(
    ("lengths", "slots", "seconds"),
    [([1, 2, 3], 1, 6), ([1, 2, 3], 3, 3), ([1, 2, 3], 50, 3), ([3, 1, 1, 1], 2, 3), ([1, 1, 1, 3], 2, 4)],
)
def test_the_ideal_starts_each_job_in_order_as_soon_as_a_slot_is_free(
    lengths: list[float], slots: int, seconds: float
) -> None:
    assert ideal(lengths, slots) == seconds


@given(st.lists(st.integers(1, 100), min_size=1, max_size=50), st.integers(1, 20))
def test_the_ideal_lies_between_the_bounds_of_list_scheduling(lengths: list[int], slots: int) -> None:
    least = max(sum(lengths) / slots, max(lengths))
    assert least <= ideal(lengths, slots) <= sum(lengths) / slots + max(lengths)


# ---- what jobs note


def test_the_tally_of_runs() -> None:
    runs = [Run(1.0, 2.0), Run(1.5, 2.5), Run(2.0, 4.0, runs=2), Run(3.0, 3.5)]
    assert span(runs) == 3.0
    assert most_at_once(runs) == 2, "the first was over when the third started"
    assert repeated(runs) == 1


def test_each_job_notes_its_start_its_end_and_how_often_it_ran(tmp_path: Path) -> None:
    with Notes(tmp_path / "notes", 4) as notes:
        order = timed.Order("", [0.001, 0.001, 0.0, 0.001], 1, "def", str(notes.path), rounds=10)
        jobs, payloads, before = timed.Jobs(order), order.payloads(), time.monotonic()
        jobs.run(payloads[0])
        assert notes.ended(range(4)) == 1
        asyncio.run(jobs.run_async(payloads[1]))
        for _ in range(2):
            jobs.run(payloads[2])
        assert [notes.ended(range(4)), notes.ended(range(1, 3)), notes.ended(range(3, 4))] == [3, 2, 0]
        found = notes.runs(range(3))
        assert [run.runs for run in found] == [1, 1, 2]
        assert before <= found[0].start < found[0].end <= found[1].start < found[1].end <= time.monotonic()
        assert found[0].end - found[0].start >= 0.001


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_node_notes_the_same_by_the_same_clock(tmp_path: Path) -> None:
    script = "const { Notes } = require(process.argv[1]); const n = new Notes(process.argv[2]);"
    script += "n.start(1); n.end(1); n.start(1)"
    with Notes(tmp_path / "notes", 2) as notes:
        before = time.monotonic()
        subprocess.run(["node", "-e", script, str(ADAPTERS / "bullmq" / "notes.cjs"), notes.path], check=True)
        untouched, run = notes.runs(range(2))
        assert untouched == Run(0.0, 0.0, 0)
        assert run.runs == 2
        assert before <= run.end <= run.start <= time.monotonic()


# ---- who is measured at what


def test_every_entry_has_its_script_and_every_measure_its_function_and_words() -> None:
    assert set(MEASURES) == set(FUNCTIONS) == set(WORDS)
    for peer in ENTRIES:
        folder = ADAPTERS / peer.adapter / "mixed.cjs"
        assert folder.exists() if peer.adapter in PACKAGES else (ADAPTERS / f"mixed_{peer.adapter}.py").exists()
        assert set(peer.measures) <= set(MEASURES)
    assert len({(peer.storage, peer.name) for peer in ENTRIES}) == len(ENTRIES)


def plan_for(*given: str) -> Plan:
    return COMPARISON.plan_of(COMPARISON.options(given))


def test_all_take_turns_at_a_measure_and_the_next_round_begins_with_another() -> None:
    plan = plan_for("--only", "mixed,slow", "--rounds", "2", "--storage", "redis")
    found = [step for step, _ in COMPARISON.steps(plan)]
    first = [[step.name for step in found if (step.round, step.measure) == (n, "def-10")] for n in range(2)]
    assert sorted(first[0]) == sorted(first[1])
    assert first[0][0] != first[1][0]
    assert "celery" in first[0]
    assert {step.name for step in found if step.measure == "slow"} == {"accoda"}
    assert "celery" not in {step.name for step in found if step.measure == "async-10"}


def test_only_a_run_of_everything_is_published() -> None:
    assert plan_for().whole
    assert plan_for().sample["mixed"] == 1500
    for left_out in (["--quick"], ["--rounds", "2"], ["--peers", "saq"], ["--only", "slow"], ["--storage", "redis"]):
        assert not plan_for(*left_out).whole
    assert {peer.adapter for peer in COMPARISON.chosen(["redis"], ["saq"])} == {"accoda", "saq"}
    assert set(PARTS) == {"mixed", "slow", "busy", "typed"}


# ---- the verdict and the report


def shares(*values: float, most: int = 10) -> Measured:
    return Measured([{"share": v, "seconds": 10 / v, "ideal": 10.0, "most": most, "repeated": 0} for v in values])


def section(storage: str, *entries: Entry) -> Section:
    return Section(storage, storage, "2 cores.", "2026-11-18", entries)


@pytest.fixture
def sections() -> list[Section]:
    rates = {"untyped": Measured([{"rate": 1000.0}, {"rate": 2000.0}]), "one-type": Measured([{"rate": 900.0}, None])}
    timed_at = {"async-10": shares(0.9, 0.94), "busy": shares(0.8, 0.82), "slow": shares(0.5, 0.5)}
    mine = Entry("accoda", "Accoda", "1", "s", ours=True, measures={**timed_at, "nine": shares(0.55, 0.55), **rates})
    other = Entry("accoda", "Accoda", "1", "s", ours=True, measures={"async-10": shares(0.86, 0.88)})
    saq = Entry("saq", "SAQ", "2", "s", measures={"async-10": shares(0.8, 0.9, most=11), "def-10": shares(0.7)})
    arq = Entry("arq", "arq", "3", "s", measures={"async-10": Measured([None], failed="no such queue")})
    return [section("redis", mine, saq, arq), section("sqlite", other)]


def test_a_demand_is_met_if_the_storage_furthest_from_it_meets_it(sections: list[Section]) -> None:
    lines = {line.demand: line for line in verdict(sections)}
    share = lines["async def, 10 slots: at least 85% of the ideal"]
    assert (share.word, share.found) == ("met", "87% on SQLite")
    ahead = lines["async def, 10 slots: ahead of every peer"]
    assert (ahead.word, ahead.found, ahead.against) == ("met", "1.03 × on SQLite", "SAQ on Redis: 85%")
    assert lines["busy jobs in processes: at least 85% of two cores"].word == "not met"
    slow = next(line for demand, line in lines.items() if "slow job" in demand)
    assert (slow.word, slow.found) == ("met", "1.10 × on Redis")
    assert lines["one type: drains at least 80% of the rate without types"].found == "90% on Redis"
    assert lines["five types: drains at least 80% of the rate without types"].word == "not measured"
    assert lines["def, 10 slots: ahead of every peer"].word == "not measured"


def test_a_demand_is_not_measured_if_one_storage_has_no_figure(sections: list[Section]) -> None:
    redis, sqlite = sections
    broken = replace(sqlite.entries[0], measures={"async-10": Measured([None], failed="why")})
    lines = verdict([redis, section("sqlite", broken)])
    assert [line.word for line in lines[:2]] == ["not measured", "not measured"]


def test_the_report_has_tables_notes_and_a_chart(sections: list[Section], tmp_path: Path) -> None:
    report = text(sections)
    assert "92% (94%)" in report
    assert "- arq on Redis, async def, 10 slots: failed: no such queue" in report
    assert "- SAQ on Redis, async def, 10 slots: up to 11 jobs ran at once, more than its slots" in report
    save(tmp_path, sections)
    for words in words_in_both(tmp_path, "mixed"):
        assert words.index("Accoda on Redis") < words.index("Accoda on SQLite") < words.index("SAQ on Redis")


# ---- a run


@pytest.mark.parametrize("how", ["async", "process"])
def test_a_worker_runs_the_jobs_and_only_those_after_the_warm_up_count(how: str) -> None:
    mine = next(peer for peer in ENTRIES if peer.ours and peer.storage == "sqlite")
    length = 0.002 if how == "async" else 0.0
    with PLACES["sqlite"]() as place:
        bench = Bench(place, Sample())
        work = Work([length] * 30, 10, how, unwatched=5, rounds=1000)
        runs = perform(bench, replace(mine, options={"warm": 0.01}), work)
    assert len(runs) == 25
    assert all(run.runs == 1 and run.end - run.start > 0.4 * length for run in runs)  # uvloop counts whole milliseconds
    assert most_at_once(runs) <= 10
