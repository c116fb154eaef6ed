"""Statistics, verdict, report and charts, from made-up numbers."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.peers.drawing import CHARTS
from benchmarks.peers.findings import Entry, Measured, Section, keep, load, percentile, ratio
from benchmarks.peers.report import save, text
from benchmarks.peers.verdict import verdict
from tests.benchmarks.drawn import words_of

Sections = dict[str, Section]


def rates(*values: float | None, **more: Any) -> Measured:
    return Measured(
        [None if v is None else {"rate": v, "client": 5.0, "server": 2.5, "callers": "", **more} for v in values]
    )


def late(*values: float) -> Measured:
    return Measured([{"late": list(values)}])


def entry(name: str, *drain: float | None, measures: dict[str, Measured] | None = None, **more: Any) -> Entry:
    found = {"drain1": rates(*drain, memory=30e6), **(measures or {})}
    return Entry(name, name.title(), "1.0", f"{name}'s setting, fast", measures=found, **more)


@pytest.fixture
def sections() -> Sections:
    redis = [
        entry("accoda", 4000.0, 4200.0, 6000.0, ours=True, measures={
            "enqueue": rates(90.0, 100.0, 110.0), "callers": rates(900.0, 1200.0, 1000.0),
            "bulk": rates(7000.0, 9000.0, 8000.0),
            "latency": late(0.0010, 0.0011, 0.0300), "delayed": late(0.001, 0.0025, 0.003),
            "bytes": Measured([{"bytes": 190.0}, None, None]),
        }),
        entry("raw", 8000.0, 7000.0, 9000.0, ceiling=True, measures={"latency": late(0.0008, 0.0010, 0.0012)}),
        entry("quick", 400.0, 200.0, 500.0, safe=False, loses="the job in hand", measures={
            "enqueue": rates(100.0, 100.0, 100.0), "bulk": Measured([None] * 3, none=True),
            "latency": late(0.0009, 0.002), "delayed": late(-0.4, 0.5, 1.5), "callers": rates(150.0, 150.0, 150.0),
        }),
        entry("slow", 90.0, 100.0, 110.0, measures={
            "latency": Measured([None] * 3, failed="no such queue"), "bulk": rates(1000.0, 1000.0, 1000.0),
        }),
        entry("bull", 1000.0, 1000.0, 1000.0, python=False),
    ]  # fmt: skip
    sqlite = [
        entry("accoda", 4000.0, 4000.0, ours=True),
        entry("loose", 2000.0, 2000.0, durable=False, loses="the last commits in a power cut"),
        entry("firm", 100.0, 160.0, safe=False),
    ]
    return {
        "redis": Section("redis", "Redis 7", "2 cores; 3 rounds.", "2026-11-16", redis),
        "sqlite": Section("sqlite", "SQLite 3", "4 cores; 2 rounds.", "2026-11-17", sqlite),
    }


def test_the_ratio_is_the_median_of_the_ratios_within_each_round() -> None:
    assert ratio(rates(4000.0, 4000.0, 6000.0), rates(400.0, 800.0, 500.0)) == 10.0  # of 10, 5 and 12


def test_a_round_that_one_of_two_missed_counts_for_neither() -> None:
    assert ratio(rates(None, 10.0, 30.0), rates(1.0, 5.0, None)) == 2.0
    assert ratio(rates(None), rates(1.0)) is None


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile(list(range(1, 101)), 0.99) == 99
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([7.0], 0.99) == 7.0


def found(sections: Sections) -> dict[str, tuple[str, str, str]]:
    return {line.demand: (line.word, line.found, line.against) for line in verdict(sections)}


def test_the_verdict_names_the_ratio_the_rival_and_whether_it_is_enough(sections: Sections) -> None:
    lines = found(sections)
    assert lines["Drain on Redis, one process: at least 8 × the fastest Python peer, any setting"] == (
        "met", "12.0 × (4,200/s)", "Quick (quick's setting, fast, not safe): 400/s",
    )  # fmt: skip
    assert lines["Drain on Redis, one process: at least 8 × the fastest Python peer, and survives kill -9"] == (
        "met", "44.4 × (4,200/s)", "Slow (slow's setting, fast, safe): 100/s",
    )  # fmt: skip
    assert lines["Drain on Redis, one process: at least 5 × Bull, bull's setting, fast"][:2] == (
        "not met",
        "4.20 × (4,200/s)",
    )
    assert lines["Drain on Redis: at least 45% of the bare engine"][:2] == ("met", "60%")
    assert lines["Enqueue on Redis, one by one: no slower than the fastest Python peer"][:2] == (
        "met",
        "1.00 × (100/s)",
    )
    assert lines["Enqueue on Redis, 100 callers: at least 10 × the fastest Python peer, one by one"][0] == "met"
    assert lines["Enqueue on Redis, in bulk: at least 10 × the fastest Python peer's bulk"][:2] == (
        "not met",
        "8.00 × (8,000/s)",
    )
    assert lines["Idle latency on Redis, median: at most 1.5 × the bare engine's"][:2] == (
        "met", "1.10 × (1.10 ms, accoda's setting, fast)",
    )  # fmt: skip
    best = "Idle latency on Redis, median: no worse than the best peer's"
    assert lines[f"{best}, any setting"] == ("not met", "1.10 ms", "Quick (quick's setting, fast, not safe): 0.90 ms")
    assert lines[f"{best} that survives kill -9"][0] == "not measured", "the safe ones have none"
    assert lines["Delayed jobs on Redis, median lateness: under 3 ms"][:2] == ("met", "2.50 ms")
    assert lines["Delayed jobs on Redis, 99th percentile: better than the best peer's, any setting"][:2] == (
        "met",
        "3.00 ms",
    )
    assert lines["A waiting job in Redis: at most 200 bytes"][:2] == ("met", "190 bytes")


def test_on_sqlite_only_peers_that_are_as_durable_are_the_measure(sections: Sections) -> None:
    whole = found(sections)[
        "Drain on SQLite, one process: at least 20 × the fastest Python peer that is as durable, any setting"
    ]
    assert whole[0] == "met"
    assert whole[2].startswith("Firm")


def test_what_was_not_measured_is_neither_met_nor_missed(sections: Sections) -> None:
    assert found(sections)["Idle latency on SQLite, median: at most 1.5 × the bare engine's"][0] == "not measured"


def test_the_report_says_which_peers_are_safe_what_failed_and_what_is_not_there(sections: Sections) -> None:
    report = text(sections)
    assert report.index("**Accoda** 1.0") < report.index("Quick 1.0") < report.index("Slow 1.0")
    assert "failed: no such queue" in report
    assert "- Quick, quick's setting: loses the job in hand" in report
    assert "Accoda's share of the bare engine: 60% (accoda's setting, fast)." in report
    assert "Its idle latency, median, to the bare engine's: 1.10 × (accoda's setting, fast)." in report
    assert "4,200 (4,000 to 6,000)" in report
    assert "SQLite 3. 4 cores; 2 rounds. 2026-11-17." in report
    bulk = next(line for line in report.splitlines() if line.startswith("| Quick") and "none" in line)
    assert bulk.split("|")[3].strip() == "no"
    assert "-400" in report  # some of quick's delayed jobs were early


def test_every_table_lines_up(sections: Sections) -> None:
    for block in text(sections).split("\n\n"):
        lines = block.splitlines()
        if lines[0].startswith("|"):
            assert len({len(line) for line in lines}) == 1


def test_a_label_is_as_long_as_it_must_be_to_be_the_only_one() -> None:
    settings = ["prefork, early acks, fast", "prefork, late acks, fast", "solo, fast"]
    entries = [Entry(str(place), "Celery", "1", setting) for place, setting in enumerate(settings)]
    here = Section("redis", "", "", "", entries)
    labels = ["Celery, prefork, early acks", "Celery, prefork, late acks", "Celery, solo"]
    assert [here.label(each) for each in entries] == labels


def test_what_was_kept_can_be_read_again(sections: Sections, tmp_path: Path) -> None:
    save(tmp_path, sections)
    assert text(load(tmp_path / "peers.json")) == text(sections)
    assert text(sections) in (tmp_path / "peers.md").read_text()


def test_a_storage_that_is_measured_alone_replaces_its_own_section(sections: Sections, tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    keep(path, sections)
    again = replace(sections["redis"], date="2026-12-24")
    keep(path, {**load(path), "redis": again})
    assert [(each.storage, each.date) for each in load(path).values()] == [
        ("redis", "2026-12-24"), ("sqlite", "2026-11-17"),
    ]  # fmt: skip


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_chart_is_a_drawing_with_the_label_of_each_that_was_measured(
    sections: Sections, tmp_path: Path, theme: str
) -> None:
    save(tmp_path, sections)
    for name, (measure, _, _) in CHARTS.items():
        measures = (measure, "bulk") if name == "enqueue" else (measure,)
        words = " ".join(words_of((tmp_path / f"peers-{name}-{theme}.svg").read_text()))
        for section in sections.values():
            assert section.about in words
            for each in section.entries:
                assert each.ceiling or not each.has(*measures) or section.label(each) in words
        assert ("failed" in words) == (name == "latency") and "not measured" not in words
