"""The deals example's simulated stretches: their numbers add up, and they can be repeated."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from examples.deals import day, hour
from examples.deals.api import Counts
from examples.deals.app import Plan
from examples.deals.automations import TIERS, population, runs
from examples.deals.report import Row, row_of, save, text, waits_of
from examples.deals.simulation import HOUR, MIDNIGHT, Outcome, Period, Wanted, simulate

EVENING = 17.0
"""The hour from which on most automations run."""


def evening(plan: Plan) -> Outcome:
    return simulate(Period(plan, day.TERMS, population(day.AUTOMATIONS), hours=2, begins=EVENING))


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return {name: evening(day.VARIANTS[name]) for name in ("everything", "none of them")}


@pytest.mark.parametrize("name", ["everything", "none of them"])
def test_every_request_is_delivered_once_or_still_waits(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    begins = MIDNIGHT + round(EVENING * HOUR)
    asked = runs(population(day.AUTOMATIONS), begins, begins + 2 * HOUR)
    assert [wanted.at for wanted in outcome.requests] == [at for at, _ in asked]
    row = row_of(name, outcome)
    assert row.requests == len(asked) == row.delivered + row.waiting == sum(row.answers.values())
    assert (row.again, row.buried) == (0, 0)
    assert sum(row.waits[tier].requests for tier in TIERS) == row.requests
    assert all(wanted.delivered_at is None or wanted.delivered_at >= wanted.at for wanted in outcome.requests)


@pytest.mark.parametrize("name", ["everything", "none of them"])
def test_every_call_and_token_is_accounted_for(outcomes: dict[str, Outcome], name: str) -> None:
    counts = outcomes[name].counts
    assert counts.calls == counts.answered + counts.refused + counts.errors
    assert counts.spent == 5 * counts.answered == sum(cost for _, cost in counts.paid)
    assert counts.spent <= outcomes[name].offered == 20 + 20 * 120


def test_sharing_needs_fewer_calls_for_the_same_requests(outcomes: dict[str, Outcome]) -> None:
    shared, alone = outcomes["everything"], outcomes["none of them"]
    assert shared.counts.calls < alone.counts.calls / 2
    assert shared.prefetched.created >= shared.prefetched.completed > 0
    assert alone.prefetched.created == 0


def test_the_same_seed_gives_the_same_run(outcomes: dict[str, Outcome]) -> None:
    assert evening(day.VARIANTS["everything"]) == outcomes["everything"]


def test_waits_and_the_share_on_time_are_computed_up_to_the_end() -> None:
    ends = MIDNIGHT + HOUR
    served = [Wanted("pro", MIDNIGHT, MIDNIGHT + 300_000, "cached", MIDNIGHT + minute * 60_000) for minute in range(20)]
    waits = waits_of(served, ends)
    assert (waits.median, waits.p95, waits.worst, waits.on_time) == (9.5, 19.0, 19.0, 0.3)
    late = Wanted("pro", ends - 60_000, ends + 240_000)  # not due before the end: undecided
    assert waits_of([late], ends).on_time == 1.0
    assert waits_of([late], ends).worst == 1.0
    assert waits_of([], ends).requests == 0


def test_the_report_has_a_table_its_figures_and_a_drawing(outcomes: dict[str, Outcome], tmp_path: Path) -> None:
    rows = [row_of(name, outcome) for name, outcome in outcomes.items()]
    save(rows, 2.0, tmp_path)
    assert msgspec.json.decode((tmp_path / "day.json").read_bytes(), type=list[Row]) == rows
    report = (tmp_path / "day.md").read_text()
    assert text(rows, 2.0) in report
    assert f"| {rows[0].name:<12} |" in report
    drawing = ElementTree.fromstring((tmp_path / "day.svg").read_text())
    shown = "".join(drawing.itertext())
    assert all(row.name in shown and f"{row.tokens:,} tokens" in shown for row in rows)
    assert "prefers-color-scheme: dark" in shown


def test_the_report_that_is_shown_is_of_this_code() -> None:
    rows = msgspec.json.decode((day.RESULTS / "day.json").read_bytes(), type=list[Row])
    assert [row.name for row in rows] == list(day.VARIANTS)
    assert text(rows) in (day.RESULTS / "day.md").read_text()
    page = (Path(__file__).parent.parent / "docs" / "deals.md").read_text()
    assert text(rows).replace("\n## ", "\n### ") in page
    assert (day.RESULTS / "hour.md").read_text().partition("\n\n")[2] in page
    assert all(row.requests == row.delivered + row.waiting for row in rows)


def test_variants_run_in_processes_of_their_own_and_tell_how_far_they_are() -> None:
    seen: list[list[float]] = []
    rows = day.run_all(0.02, 0, seen.append)
    assert [row.name for row in rows] == list(day.VARIANTS)
    assert seen[-1] == [1.0] * len(day.VARIANTS)
    assert len({row.requests for row in rows}) == 1


def test_eight_workers_are_refused_nothing_and_leave_few_tokens() -> None:
    five, mixed = (hour.measure(case, minutes=8) for case in hour.CASES[:2])
    assert (five.refused, mixed.refused) == (0, 0)
    assert five.utilisation >= 0.95
    assert mixed.utilisation >= 0.9
    assert mixed.together > 1  # calls overlap


def test_an_expensive_head_is_called_within_a_refill_of_becoming_affordable() -> None:
    heads = hour.measure_heads(2)
    assert len(heads) == 2
    assert all(head.since_affordable <= 60 for head in heads)


def test_counts_start_at_nothing_each_time() -> None:
    Counts().paid.append((0, 5))
    assert Counts().paid == []
