"""The comparison of lanes: what notes of limited jobs say, the verdict, the report, and runs with real workers."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "peers" / "adapters"))

import laned
from benchmarks.lanes.__main__ import COMPARISON, found
from benchmarks.lanes.catalogue import ENTRIES, MEASURES, ONCE, PARTS, STORAGES
from benchmarks.lanes.measures import MEASURES as FUNCTIONS
from benchmarks.lanes.measures import WORDS, Bench, Sample, Values
from benchmarks.lanes.report import save, text
from benchmarks.lanes.tally import Limited, tally
from benchmarks.lanes.verdict import BASE, verdict
from benchmarks.mixed.workload import Run
from benchmarks.peers.catalogue import ENVIRONMENTS
from benchmarks.peers.findings import Entry, Measured, Section
from benchmarks.peers.journal import Plan
from benchmarks.peers.stores import PLACES
from tests.benchmarks.drawn import words_in_both

# ---- jobs with a limit

WORK = Limited(customers=2, jobs=3, length=1.0, limit=2)


def test_the_ideal_runs_all_customers_at_once_each_with_as_many_jobs_as_it_may() -> None:
    assert WORK.ideal == 2.0
    assert Limited(10, 200, 0.02, 2).ideal == 2.0


def test_the_most_at_once_is_that_of_one_customer() -> None:
    first = [Run(0.0, 1.0), Run(0.5, 1.5), Run(1.0, 2.0)]
    second = [Run(0.0, 1.0), Run(0.5, 1.5), Run(0.9, 2.5)]
    in_turn = [run for pair in zip(first, second, strict=True) for run in pair]
    assert tally(WORK, in_turn) == {
        "seconds": 2.5, "ideal": 2.0, "share": 0.8, "most": 3, "never": 0, "repeated": 0,
    }  # fmt: skip


def test_a_job_that_has_not_ended_has_never_run_and_counts_for_no_share() -> None:
    runs = [Run(0.0, 1.0), Run(0.0, 1.0, runs=2), Run(1.0, 2.0), Run(0.0, 0.0, 0), Run(1.5, 0.0), Run(0.0, 0.0, 0)]
    told = tally(WORK, runs)
    assert (told["never"], told["repeated"], told["share"]) == (3, 1, 0.5)


# ---- whose jobs they are


def test_the_first_jobs_warm_up_and_then_customers_are_in_turn() -> None:
    names = [laned.customer_of(index, 2, 3) for index in range(6)]
    assert names == ["warm-0", "warm-1", "customer-0", "customer-1", "customer-2", "customer-0"]


def test_the_place_of_the_last_of_the_others_is_what_counts() -> None:
    order = laned.Order("", jobs=4, others=2)
    assert order.customers() == ["crowd"] * 4 + ["other-0", "other-1"]
    starts = laned.Starts(order.others)
    for customer in ("crowd", "other-1", "crowd", "crowd"):
        starts.started(customer)
    assert not starts.complete.is_set()
    starts.started("other-0")
    assert starts.complete.is_set()
    assert starts.found() == {"first": 2, "within": 5}


def test_the_lengths_of_jobs_differ_and_are_the_same_in_each_run() -> None:
    order = laned.Order("", jobs=4, length=0.02)
    lengths = list(itertools.islice(order.lengths(), 100))
    assert lengths == list(itertools.islice(order.lengths(), 100))
    assert len(set(lengths)) == 100
    assert all(0.01 <= length <= 0.03 for length in lengths)


# ---- who is measured at what


def test_every_entry_has_its_scripts_and_every_measure_its_function_and_words() -> None:
    folder = Path(__file__).parents[2] / "benchmarks" / "peers" / "adapters"
    assert set(MEASURES) == set(FUNCTIONS) == set(WORDS)
    assert set(BASE) | set(BASE.values()) == set(PARTS["rates"])
    assert set(ONCE) <= set(MEASURES)
    for peer in ENTRIES:
        assert peer.adapter in ENVIRONMENTS
        assert peer.storage in STORAGES
        for part in PARTS:
            needed = set(peer.measures) & set(PARTS[part])
            assert not needed or (folder / f"{part}_{peer.adapter}.py").exists()
    assert len({(peer.storage, peer.name) for peer in ENTRIES}) == len(ENTRIES)


def plan_for(*given: str) -> Plan:
    return COMPARISON.plan_of(COMPARISON.options(given))


def test_only_a_run_of_everything_is_published() -> None:
    assert plan_for().whole
    assert plan_for().sample["crowd"] == 10_000
    for left_out in (["--quick"], ["--rounds", "2"], ["--peers", "dbos"], ["--only", "limit"], ["--storage", "redis"]):
        assert not plan_for(*left_out).whole
    assert {peer.adapter for peer in COMPARISON.chosen(["postgres"], ["dbos"])} == {"accoda", "dbos"}


def test_long_measures_have_one_round_and_the_memory_storage_has_no_limit_to_measure() -> None:
    steps = [step for step, _ in COMPARISON.steps(plan_for())]
    assert {step.round for step in steps if step.measure in ONCE} == {0}
    assert {step.measure for step in steps if step.storage == "memory"} == {*PARTS["rates"], *PARTS["turns"]}
    assert {step.name for step in steps if step.measure == "fifo"} == {"accoda", "dramatiq"}


# ---- the verdict and the report


def rates(*values: float) -> Measured:
    return Measured([{"rate": value, "enqueued": 2 * value} for value in values])


def limited(share: float, most: int = 2, never: int = 0) -> Measured:
    return Measured([
        {"share": share, "seconds": 2 / share, "ideal": 2.0, "most": most, "never": never, "repeated": 0}
    ])  # fmt: skip


def within(*values: int) -> Measured:
    return Measured([{"within": value, "crowd": 10_000, "others": 50} for value in values])


def section(storage: str, *entries: Entry) -> Section:
    return Section(storage, storage, "2 cores.", "2026-11-18", entries)


@pytest.fixture
def sections() -> list[Section]:
    measures = {"plain": rates(1000, 2000), "one": rates(600, 1400), "fair-one": within(51, 55), "limit": limited(0.9)}
    mine = Entry("accoda", "Accoda", "1", "s", ours=True, measures=measures)
    slower = {"plain": rates(100, 100), "one": rates(40, 44), "fair-one": within(60, 61), "limit": limited(0.8)}
    other = Entry("accoda", "Accoda", "1", "s", ours=True, measures=slower)
    peers = [
        Entry("keeps", "Keeps", "2", "a, b", measures={"limit": limited(0.7)}),
        Entry("breaks", "Breaks", "3", "a", measures={"limit": limited(0.95, most=3)}),
        Entry("loses", "Loses", "4", "a", measures={"limit": limited(0.96, never=5)}),
        Entry("fails", "Fails", "5", "a", measures={"limit": Measured([None], failed="no such queue")}),
    ]
    return [section("redis", mine, *peers), section("sqlite", other)]


def test_a_demand_is_met_if_the_storage_furthest_from_it_meets_it(sections: list[Section]) -> None:
    lines = {line.demand: line for line in verdict(sections)}
    drained = lines["one lane: drains at least 50% of the rate without"]
    assert (drained.word, drained.found) == ("not met", "42% on SQLite")
    assert lines["1,000 lanes: drains at least 50% of the rate without"].word == "not measured"
    soon = lines["fair, one worker: all other customers start within the first 60 starts"]
    assert (soon.word, soon.found) == ("not met", "61 on SQLite")
    kept = lines["a limit for each customer: at most 2 at once, and every job runs once"]
    assert (kept.word, kept.found) == ("met", "2 on SQLite, 0 jobs not once")


def test_only_a_peer_that_keeps_the_limit_and_runs_every_job_is_a_rival(sections: list[Section]) -> None:
    ahead = verdict(sections)[-1]
    assert (ahead.word, ahead.found, ahead.against) == ("met", "80% on SQLite", "Keeps on Redis: 70%")


def test_the_limit_is_not_kept_if_a_job_never_ran_or_more_than_two_ran_at_once(sections: list[Section]) -> None:
    redis, sqlite = sections
    for broken in (limited(0.9, most=3), limited(0.9, never=1)):
        worse = replace(sqlite.entries[0], measures={"limit": broken})
        assert verdict([redis, section("sqlite", worse)])[-2].word == "not met"


def test_the_report_has_tables_notes_and_a_chart(sections: list[Section], tmp_path: Path) -> None:
    report = text(sections)
    assert "65%" in report, "the median of the rounds' own ratios"
    assert "10,000 jobs of one customer, then one of each of 50 others" in report
    assert "- Breaks on Redis, a limit for each customer: up to 3 jobs of a customer ran at once" in report
    assert "- Fails on Redis, a limit for each customer: failed: no such queue" in report
    assert "Hatchet" in report
    save(tmp_path, sections)
    for words in words_in_both(tmp_path, "lanes"):
        assert words.index("Accoda on Redis") < words.index("Accoda on SQLite") < words.index("Keeps, a on Redis")


# ---- runs

SMALL = Sample(jobs=1000, large=1000, crowd=50, others=5, limited=4, length=0.002)


def measured(storage: str, measure: str) -> Values:
    mine = next(peer for peer in ENTRIES if peer.ours and peer.storage == storage)
    with PLACES[storage]() as place:
        values = FUNCTIONS[measure](Bench(place, SMALL), mine)
    assert found(measure, values)
    return values


def test_a_rate_is_that_of_the_jobs_put_in_and_worked_off() -> None:
    values = measured("memory", "each")
    assert (values["jobs"], values["lanes"]) == (1000, 1000)
    assert values["rate"] > 0
    assert values["enqueued"] > 0


@pytest.mark.parametrize(("measure", "most"), [("fair-one", 20), ("fifo", 55)])
def test_the_others_start_early_in_a_fair_line_and_last_in_one_without_lanes(measure: str, most: int) -> None:
    assert 5 <= measured("memory", measure)["within"] <= most


def test_four_workers_share_one_store_also_in_memory() -> None:
    assert measured("memory", "fair-four")["within"] <= 55


def test_a_limit_is_kept_and_every_job_runs() -> None:
    values = measured("sqlite", "limit")
    assert (values["most"], values["never"], values["repeated"]) == (2, 0, 0)
    assert 0 < values["share"] <= 1
