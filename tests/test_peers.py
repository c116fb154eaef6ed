"""The benchmark beside other queues, without any of them installed: the report, and a drain by Accoda itself."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.peers.catalogue import ENVIRONMENTS, PEERS, STORAGES, Peer, chosen
from benchmarks.peers.drain import ADAPTERS, DrainFailed, drain
from benchmarks.peers.report import Findings, Row, chart, fastest_peer, from_json, ratio, save, text


def row(name: str, rates: list[float | None], *, durable: bool = True, failed: str = "") -> Row:
    return Row("sqlite", name, name.title(), "1.0", "1 thread", 500, name == "accoda", durable, rates, failed)


@pytest.fixture
def findings() -> Findings:
    rows = [
        row("slow", [90.0, 100.0, 110.0]),
        row("quick", [400.0, 800.0, 500.0], durable=False),
        row("accoda", [4000.0, 4000.0, 6000.0]),
        row("absent", [None, None, None], failed="pip install absent: no such thing"),
    ]
    return Findings({"machine": "2 cores.", "sqlite": "SQLite 3"}, rows)


def test_the_ratio_is_the_median_of_the_ratios_within_each_round(findings: Findings) -> None:
    rows = findings.of("sqlite")
    best = fastest_peer(rows)
    assert best is not None
    assert best.name == "quick"
    assert ratio(rows[0], best) == 10.0  # of 10, 5 and 12


def test_a_round_that_one_of_two_missed_counts_for_neither() -> None:
    assert ratio(row("a", [None, 10.0, 30.0]), row("b", [1.0, 5.0, None])) == 2.0
    assert ratio(row("a", [None]), row("b", [1.0])) is None


def test_the_report_sorts_by_rate_and_names_who_was_not_measured(findings: Findings) -> None:
    report = text(findings)
    assert report.index("**Accoda**") < report.index("Quick 1.0") < report.index("Slow 1.0")
    assert "10.0 times the rate of Quick (1 thread), the fastest peer; 44.4 times the rate of Slow" in report
    assert "- Absent, 1 thread, on SQLite: pip install absent: no such thing" in report


def test_saved_findings_can_be_read_again(findings: Findings, tmp_path: Path) -> None:
    save(findings, tmp_path)
    again = from_json((tmp_path / "peers.json").read_text())
    assert [asdict(found) for found in again.rows] == [asdict(found) for found in findings.rows]
    assert text(again) in (tmp_path / "peers.md").read_text()


def test_the_chart_is_a_drawing_with_a_bar_for_each_rate(findings: Findings) -> None:
    drawing = ElementTree.fromstring(chart(findings))
    bars = [each for each in drawing.iter("{http://www.w3.org/2000/svg}rect") if each.get("x") == "225"]
    assert [bar.get("class") for bar in bars] == ["ours", "raw", "raw"]


def test_every_peer_has_an_adapter_an_environment_and_a_name_of_its_own() -> None:
    assert all((ADAPTERS / f"drain_{peer.adapter}.py").exists() and peer.adapter in ENVIRONMENTS for peer in PEERS)
    assert len({(peer.storage, peer.name) for peer in PEERS}) == len(PEERS)


def test_accoda_is_measured_beside_whoever_is_chosen() -> None:
    assert [peer.name for peer in chosen(["sqlite"], ["litequeue-full"])] == [
        "accoda",
        "accoda-one",
        "accoda-fast",
        "litequeue-full",
    ]
    assert {peer.storage for peer in chosen(STORAGES, [])} == set(STORAGES)


def accoda_on_sqlite(**options: object) -> Peer:
    return Peer("accoda", "sqlite", "Accoda", "", 0, {"batch": 10, "processors": 2, **options})


def test_a_drain_reports_the_jobs_after_the_first_fifth(tmp_path: Path) -> None:
    settled: list[str] = []
    found = drain(accoda_on_sqlite(), f"sqlite:///{tmp_path}/jobs.db", 200, lambda: settled.append("between"))
    assert found.count == 160
    assert found.last > found.first
    assert settled == ["between"]


def test_an_adapter_that_fails_says_with_what(tmp_path: Path) -> None:
    with pytest.raises(DrainFailed, match=r"the worker ended early: .*batch"):
        drain(accoda_on_sqlite(batch=-1), f"sqlite:///{tmp_path}/jobs.db", 10, lambda: None)


def test_the_published_figures_can_be_read() -> None:
    published = Path(__file__).parent.parent / "benchmarks" / "results" / "peers.json"
    if published.exists():
        assert from_json(published.read_text()).storages == list(json.loads(published.read_text())["about"])[1:]
