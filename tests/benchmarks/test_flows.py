"""The flows benchmark: what notes say of joins, who is measured at what, the verdict, and a run with real workers."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.flows.__main__ import COMPARISON
from benchmarks.flows.catalogue import ENTRIES, ONCE, PARTS
from benchmarks.flows.measures import MEASURES, WORDS, Bench, Sample, fan, kills, many, shoot, wide
from benchmarks.flows.notes import NotesFile, new_notes
from benchmarks.flows.report import save, text
from benchmarks.flows.tally import Note, Tally
from benchmarks.flows.verdict import verdict
from benchmarks.peers.catalogue import ENVIRONMENTS, PACKAGES
from benchmarks.peers.environments import ADAPTERS
from benchmarks.peers.findings import Entry, Measured, Section
from benchmarks.peers.fire import Group
from benchmarks.peers.journal import Plan
from benchmarks.peers.peer import Peer
from benchmarks.peers.stores import PLACES
from tests.benchmarks.drawn import words_in_both

# ---- what the notes say


def tally_of(*lines: str) -> Tally:
    tally = Tally()
    tally.add(Note.read(line) for line in lines)
    return tally


def test_a_join_after_all_its_members_is_right_also_when_a_member_ran_twice() -> None:
    tally = tally_of("start 1 - 1.0", "member 1 0 2", "member 1 1 3", "member 1 0 3.5", "join 1 7 4.0")
    found = tally.verdict(1, 2)
    assert (found["joined"], found["early"], found["twice"], found["never"]) == (1, 0, 0, 0)
    assert (found["missing"], found["repeated"]) == (0, 1)
    assert (tally.flows[1].started_at, tally.flows[1].joined_at) == (1.0, 4.0)
    assert (tally.first_at, tally.last_at) == (2.0, 4.0)


def test_a_join_is_early_if_a_member_has_no_note_before_it() -> None:
    assert tally_of("member 1 0 1", "join 1 - 2", "member 1 1 3").verdict(1, 2)["early"] == 1
    again = tally_of("member 1 0 1", "member 1 0 1", "join 1 - 2")
    assert again.verdict(1, 2)["early"] == 1
    assert again.verdict(1, 2)["missing"] == 1


def test_a_join_that_ran_twice_is_one_firing_if_the_queue_says_so() -> None:
    lines = ("member 1 0 1", "member 2 0 1", "member 3 0 1")
    joins = ("join 1 7 2", "join 1 7 3", "join 2 8 2", "join 2 9 3", "join 3 - 2", "join 3 - 3")
    found = tally_of(*lines, *joins).verdict(4, 1)
    assert (found["joined"], found["twice"], found["again"], found["never"]) == (3, 3, 1, 1)


def test_the_flow_that_warms_up_does_not_count() -> None:
    tally = tally_of("member 0 0 1", "join 0 - 2")
    assert tally.warmed
    assert (tally.joined, tally.ended, tally.first_at) == (0, 0, None)


def test_a_line_that_is_half_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    notes = NotesFile(tmp_path / "notes")
    with notes.path.open("a") as file:
        file.write("member 1 0 1.5\nmember 1 ")
        file.flush()
        assert notes.tally().ended == 1
        file.write("1 2.5\n")
    assert notes.tally().ended == 2
    notes.close()


# ---- who is measured at what


def test_every_entry_has_an_adapter_an_environment_and_a_name_of_its_own() -> None:
    for peer in ENTRIES:
        script = (
            ADAPTERS / peer.adapter / "flow.cjs" if peer.adapter in PACKAGES else ADAPTERS / f"flow_{peer.adapter}.py"
        )
        assert script.exists()
        assert peer.adapter in ENVIRONMENTS or peer.adapter in PACKAGES
        assert peer.safe or peer.loses
        assert set(peer.measures) <= set(MEASURES) == set(WORDS)
    assert len({(peer.storage, peer.name) for peer in ENTRIES}) == len(ENTRIES)
    assert {measure for part in PARTS.values() for measure in part} == set(MEASURES)


def plan_for(*given: str) -> Plan:
    return COMPARISON.plan_of(COMPARISON.options(given))


def test_fans_are_measured_in_every_round_and_the_rest_once() -> None:
    plan = plan_for("--rounds", "2", "--storage", "redis")
    found = [step for step, _ in COMPARISON.steps(plan)]
    fans = [[step.name for step in found if (step.round, step.measure) == (number, "fan")] for number in range(2)]
    assert sorted(fans[0]) == sorted(fans[1])
    assert fans[0][0] != fans[1][0]
    assert {step.round for step in found if step.measure in ONCE} == {0}
    assert {step.name for step in found if step.measure == "wide"} == {"accoda"}


def test_only_a_run_of_everything_is_published() -> None:
    assert plan_for().whole
    for left_out in (["--quick"], ["--rounds", "2"], ["--peers", "rq"], ["--only", "scale"], ["--storage", "redis"]):
        assert not plan_for(*left_out).whole
    assert {peer.adapter for peer in COMPARISON.chosen(["redis"], ["celery"])} == {"accoda", "celery"}


# ---- the verdict and the report


def fans(*rates: float) -> Measured:
    joins = {"flows": 1, "joined": 1, "early": 0, "twice": 0, "again": 0, "never": 0}
    return Measured([{"rate": r, "seconds": 1000 / r, "start": 0.01, "members": 999, **joins} for r in rates])


def under_kills(**counted: int) -> Measured:
    none = dict.fromkeys(("early", "twice", "again", "never", "missing", "repeated"), 0)
    return Measured([{"flows": 20, "kills": 10, "joined": 20, "seconds": 2.5, **none, **counted}])


@pytest.fixture
def sections() -> list[Section]:
    mine = Entry("accoda", "Accoda", "1", "default", ours=True, measures={"fan": fans(4000, 6000)})
    shot = Entry("accoda-lease", "Accoda", "1", "leases", ours=True, measures={"kills": under_kills(twice=1, again=1)})
    huey = Entry("huey", "Huey", "3", "chord", safe=False, loses="jobs", measures={"fan": fans(1000, 1000)})
    celery = Entry(
        "celery", "Celery", "5", "chord", measures={"fan": fans(500), "kills": under_kills(joined=18, never=2)}
    )
    node = Entry("bullmq", "BullMQ", "6", "flow", python=False, measures={"fan": fans(9000)})
    rq = Entry("rq", "RQ", "2", "depends_on", measures={"fan": Measured([None], failed="no such queue")})
    return [Section("redis", "Redis", "2 cores.", "2026-11-18", [mine, shot, huey, celery, node, rq])]


def test_the_verdict_compares_with_the_fastest_python_peer_and_counts_wrong_joins(sections: list[Section]) -> None:
    any_setting, safe, *rest = verdict(sections)
    assert (any_setting.word, any_setting.found) == ("met", "5.00 ×")
    assert any_setting.against.startswith("Huey")
    assert (safe.word, safe.found) == ("met", "8.00 ×")
    assert [(line.word, line.found) for line in rest] == [
        ("met", "0 wrong of 2"), ("met", "0 wrong of 20"), ("not measured", ""), ("not measured", ""),
    ]  # fmt: skip


def test_a_join_of_ours_that_never_fired_fails_the_verdict(sections: list[Section]) -> None:
    broken = replace(sections[0].entries[1], measures={"kills": under_kills(joined=19, never=1)})
    lines = verdict([replace(sections[0], entries=[broken])])
    assert [line.word for line in lines if "under kills" in line.demand] == ["not met"]
    assert lines[0].word == "not measured"


def test_the_report_has_tables_notes_and_a_chart(sections: list[Section], tmp_path: Path) -> None:
    report = text(sections)
    assert "4,000 to 6,000" in report
    assert "- RQ on Redis, a fan and its join: failed: no such queue" in report
    assert "1 of the joins that ran twice" in report
    save(tmp_path, sections)
    for words in words_in_both(tmp_path, "flows"):
        assert words.index("BullMQ on Redis") < words.index("Accoda on Redis") < words.index("Huey on Redis")
        assert "2 of 20" in words


# ---- a run


SMALL = Sample(fan=20, kill_flows=2, kill_members=10, length=0.001, kills=0, wide=30, many=15)


def accoda_on_sqlite(measure: str) -> Peer:
    return next(peer for peer in ENTRIES if peer.ours and peer.storage == "sqlite" and measure in peer.measures)


@pytest.mark.parametrize("measure", ["fan", "wide", "many", "kills"])
def test_a_worker_runs_the_flows_and_every_join_fires_once(measure: str) -> None:
    run = {"fan": fan, "wide": wide, "many": many, "kills": kills}[measure]
    with PLACES["sqlite"]() as place:
        found = run(Bench(place, SMALL), accoda_on_sqlite(measure))
    assert found["flows"] == found["joined"] == {"fan": 1, "wide": 1, "many": 15, "kills": 2}[measure]
    assert (found["early"], found["twice"], found["never"], found["missing"]) == (0, 0, 0, 0)
    if measure != "kills":
        assert found["rate"] > 0


WRITER = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
for number in range(10_000):
    os.write(file, f"member 1 {os.getpid()}-{number} 1.0\\n".encode())
    time.sleep(0.001)
"""


def test_a_worker_is_killed_as_often_as_asked_and_started_again_each_time() -> None:
    with new_notes() as notes:
        group = Group([sys.executable, "-c", WRITER, str(notes.path)], dict(os.environ), 2)
        try:
            shoot(group, notes, Sample(kill_flows=1, kill_members=40, kills=3, length=0.001))
            while len(pids := {which.partition("-")[0] for which in notes.tally().flows[1].ended}) < 4:
                pass
        finally:
            group.kill()
    assert len(pids) == 4
