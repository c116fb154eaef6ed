"""The benchmark of records compares ways that do the same."""

import pytest

pytest.importorskip("pydantic")

from benchmarks.contract import VALUES, bare, by_hand, generated, measure, pydantic_ways, report

WAYS = {"generated": generated(), "msgspec by hand": by_hand(), **pydantic_ways()}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_same_record(way: str) -> None:
    found = WAYS[way]()
    meta = {"job_id": 7, "attempts": 1, "prev_start_time": 1_700_000_000_000}
    assert {name: getattr(found, name) for name in (*meta, *VALUES)} == {**meta, **VALUES}


def test_it_reports_every_way() -> None:
    rows = measure({**WAYS, "msgspec, bare array": bare()}, rounds=3, laps=5)
    text = report(rows)
    assert all(f"| {row.name} |" in text for row in rows)
    assert rows[0].ratio == 1.0
