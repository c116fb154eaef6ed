"""Every part of `make bench-scale` with very few jobs, and what is made of the findings."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from benchmarks.scale import cluster, costs, delayed, many, output, queues, tables, waiters, workers
from benchmarks.scale.__main__ import main, parse, refusal, room_needed
from benchmarks.scale.cluster import PARTITIONS, QUEUE, borders
from benchmarks.scale.load import Loaded, Order, batches
from benchmarks.scale.many import verdict
from benchmarks.scale.record import Progress, Record
from benchmarks.scale.sizes import Sizes, quick
from proof.servers.process import find_program
from proof.servers.pytest import need

from accoda.storage.redis.keys import slot_of

TINY = replace(
    quick(), jobs=2000, few=200, rounds=1, seconds=0.02, looks=2, queues=5, per_queue=4, idle_seconds=0.05, latencies=2,
    settle_seconds=0.05, delayed=300, window=0.3, beforehand=0.5, waiters=40, keys=4,
    processes=(2,), drain_rounds=1, drains={"sqlite": 4000.0, "redis": 4000.0},
    masters=(2,), cluster_jobs=4000, batches=(1, 100),
)  # fmt: skip


@pytest.fixture
def progress() -> Progress:
    return Progress({})


@pytest.fixture(params=["sqlite", "redis"])
def storage(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "redis":
        need(lambda: find_program("redis-server"))
    yield request.param


def shown(part: str, found: dict[str, Any]) -> str:
    """What a person reads of it, made from JSON as after a run."""
    record = Record(None)
    record.put(part, json.loads(json.dumps(found)))
    return "\n".join(tables.part(record, part))


def test_many_jobs_are_loaded_taken_looked_at_and_survive_a_restart(storage: str, progress: Progress) -> None:
    found = many.run([storage], TINY, progress)
    one = found[storage]
    assert one["bytes"] > 50
    assert [take["batch"] for take in one["take"]] == [100, 1]
    assert set(one["pages_ms"]) == {"overview", "queue", "jobs", "jobs of the queue"}
    assert one["restart"]["seconds"] > 0
    assert "2,000 waiting" in shown("many", found)


def test_many_queues_are_drained_by_one_worker(storage: str, progress: Progress) -> None:
    found = queues.run([storage], TINY, progress)
    assert found[storage]["many"]["rate"] > 0
    assert found[storage]["many"]["latency_ms"] > 0
    assert "| 5 |" in shown("queues", found).replace("      ", " ").replace("   ", "")


def test_delayed_jobs_run_as_they_come_and_none_early(storage: str, progress: Progress) -> None:
    found = delayed.run([storage], TINY, progress)
    one = found[storage]
    assert one["early"] == 0
    assert one["steps"][-1]["ran"] <= 300
    assert "all had run after" in shown("delayed", found)


def test_waiters_are_all_served_by_one_fetch_for_each_key(storage: str, progress: Progress) -> None:
    found = waiters.run([storage], TINY, progress)
    assert (found[storage]["fetches"], found[storage]["served"]) == (4, 40)
    assert "40" in shown("waiters", found)


def test_a_crew_drains_a_queue(storage: str, progress: Progress) -> None:
    found = workers.run([storage], TINY, progress)
    assert [point["processes"] for point in found[storage]["points"]] == [2]
    assert all(point["count"] == 4000 and point["rate"] > 0 for point in found[storage]["points"])
    assert "nine tenths" in shown("workers", found)


def test_each_master_of_a_cluster_has_its_part_of_the_work(progress: Progress) -> None:
    need(lambda: find_program("redis-server"))
    found = cluster.run(["redis"], TINY, progress)
    assert [len(point["enqueue_nodes"]) for point in found["points"]] == [2]
    assert all(node > 0 for point in found["points"] for node in point["enqueue_nodes"])
    assert "| 2 " in shown("cluster", found)


def test_costs_are_measured_for_each_batch_size(storage: str, progress: Progress) -> None:
    found = costs.run([storage], TINY, progress)
    points = found[storage]["run"]
    assert [point["batch"] for point in points] == [1, 100]
    assert points[0]["client"] > points[1]["client"] > 0
    assert points[0]["server"] > 0
    assert (points[0]["wire"] > 50) == (storage == "redis")
    assert "take + settle" in shown("costs", found)


def test_partitions_are_spread_evenly_over_any_number_of_masters() -> None:
    slots = [slot_of(f"{QUEUE}/{partition}") for partition in range(PARTITIONS)]
    for masters in (1, 2, 3):
        ends = borders(masters)
        shares = [sum(low <= slot < high for slot in slots) for low, high in pairwise(ends)]
        assert shares == [PARTITIONS // masters] * masters


def test_the_verdict_follows_from_the_numbers() -> None:
    good = {"take": [{"batch": 100, "ratio": 0.7}], "stats_ms": {"median": 4.99}}
    assert [line.rpartition(" ")[2] for line in verdict(good)] == ["yes", "yes"]
    bad = {"take": [{"batch": 100, "ratio": 0.69}], "stats_ms": {"median": 5.0}}
    assert [line.rpartition(" ")[2] for line in verdict(bad)] == ["NO", "NO"]


def test_the_rate_of_each_part_of_a_load_is_told() -> None:
    loaded = Loaded(100, 30.0, [(10 * n, float(n if n <= 5 else 5 + (n - 5) * 5)) for n in range(1, 11)], 0.0)
    assert loaded.rates(2) == [(50, 10.0), (100, 2.0)]


def test_delayed_jobs_come_due_within_the_window_and_carry_their_moment() -> None:
    made = batches(Order("", "delayed", 100, due_from=1000.0, due_until=1060.0))(0, 100)
    moments = [job.start_at for job in made if job.start_at is not None]
    assert len(moments) == 100
    assert 1_000_000 <= min(moments) < max(moments) <= 1_060_000


def test_it_refuses_where_there_is_too_little_room() -> None:
    disk, memory = room_needed(10_000_000, ["sqlite", "redis"])
    assert refusal(10_000_000, ["sqlite", "redis"], disk, memory) is None
    assert "of disk" in str(refusal(10_000_000, ["sqlite", "redis"], disk - 1, memory))
    assert "--jobs" in str(refusal(10_000_000, ["sqlite", "redis"], disk, memory - 1))


def test_a_part_replaces_its_own_section_and_other_storages_of_the_same_size_stay(tmp_path: Path) -> None:
    record = Record.load(tmp_path)
    record.put("many", {"jobs": 10, "sqlite": {"bytes": 1}})
    record.put("many", {"jobs": 10, "redis": {"bytes": 2}})
    record.put("queues", {"queues": 3})
    again = Record.load(tmp_path)
    assert again.get("many")["sqlite"] == {"bytes": 1}
    assert again.get("many")["machine"] and again.get("many")["date"]
    again.put("many", {"jobs": 20, "redis": {"bytes": 3}})
    assert "sqlite" not in again.get("many")
    assert again.get("queues")["queues"] == 3


@pytest.mark.parametrize(
    "words", [["nothing"], ["--storage", "mysql"], ["--jobs", "5"], ["model", "--batch", "0"], ["model", "--use", "2"]]
)
def test_what_makes_no_sense_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(words)
    assert "error" in capsys.readouterr().err


def stored() -> dict[str, Any]:
    """Sections as a run leaves them behind."""
    points = [
        {"batch": n, "client": 1e-5 / n, "server": 1e-4 / n + 1e-6, "wall": 1e-3 / n, "wire": 0.0, "disk": 9e3 / n}
        for n in (1, 10, 100)
    ]
    work = {"processes": 1, "count": 9, "rate": 9e4, "client": 5e-6, "server": 4e-6, "memory": 9 << 20, "rates": [9e4]}
    about = {"date": "2026-01-01", "machine": "2 cores"}
    facts = {"payload": 50, "sync_seconds": 0.001, "cores": 2}
    return {
        "costs": {**about, **facts, "sqlite": {"enqueue": points, "run": points, "bytes": 120.0}},
        "workers": {**about, "batch": 100, "processors": 4, "sqlite": {"points": [work], "stops_at": 1}},
    }


def test_a_run_writes_tables_and_charts_and_the_model_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.scale.__main__.quick", lambda jobs: TINY)
    monkeypatch.setattr("signal.signal", lambda *given: None)
    (tmp_path / "scale.json").write_text(json.dumps(stored()))
    place = ["--results", str(tmp_path)]
    main(["waiters", "--quick", "--storage", "sqlite", *place])
    assert "Ten thousand waiters" in capsys.readouterr().out
    main(["model", "--jobs-per-day", "1e9", "--payload", "500", *place])
    text = capsys.readouterr().out
    assert "11,574 a second on average and 34,722 at the peak" in text
    assert "Median error" in text
    written = (tmp_path / "scale.md").read_text()
    assert "What one job costs" in written
    assert "Ten thousand waiters" in written
    names = {file.name for file in tmp_path.glob("*.svg")}
    assert {"scale-workers-light.svg", "scale-workers-dark.svg", "scale-model-light.svg"} <= names
    for file in tmp_path.glob("*.svg"):
        ElementTree.parse(file)


def test_the_model_says_what_to_run_first_where_nothing_is_measured(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="costs workers"):
        main(["model", "--results", str(tmp_path)])


def test_tables_go_between_the_markers_and_an_unknown_marker_is_an_error() -> None:
    text = "a\n<!-- scale: many -->\nold\n<!-- /scale -->\nb\n<!-- scale: costs -->\nkept\n<!-- /scale -->\n"
    filled = output.inserted(text, {"many": ["new"], "costs": []})
    assert (
        filled == "a\n<!-- scale: many -->\n\nnew\n\n<!-- /scale -->\nb\n<!-- scale: costs -->\nkept\n<!-- /scale -->\n"
    )
    assert output.inserted(filled, {"many": ["new"], "costs": []}) == filled
    with pytest.raises(ValueError, match="asks for 'many'"):
        output.inserted(text, {})


def test_the_document_asks_only_for_tables_that_exist() -> None:
    found = output.sections(Record(None))
    output.inserted(output.DOCS.read_text(), found)
    assert {match[2] for match in output.MARK.finditer(output.DOCS.read_text())} <= set(found)


def test_in_full_it_is_what_the_document_says() -> None:
    assert (Sizes().jobs, Sizes().queues, Sizes().delayed, Sizes().window) == (10_000_000, 1000, 1_000_000, 60.0)
    assert (Sizes().waiters, Sizes().keys, Sizes().masters) == (10_000, 1000, (1, 2, 3))
    assert (min(Sizes().processes), max(Sizes().processes)) == (1, 8)
