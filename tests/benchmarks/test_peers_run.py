"""A run with real adapters: which peers are chosen, what a step gives, what fails, how an interrupted run goes on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.peers.__main__ import main, options, plan_of
from benchmarks.peers.adapting import AdapterFailed
from benchmarks.peers.catalogue import CEILINGS, ENVIRONMENTS, PACKAGES, PEERS, STORAGES, chosen
from benchmarks.peers.environments import ADAPTERS
from benchmarks.peers.findings import load
from benchmarks.peers.journal import Journal, NothingToContinue, Plan, Result, Step
from benchmarks.peers.measures import Bench, Sample, drain, lateness, put
from benchmarks.peers.peer import Peer
from benchmarks.peers.running import remaining, steps
from benchmarks.peers.stores import PLACES
from proof.servers.postgres import find_postgres
from proof.servers.process import find_program
from proof.servers.pytest import need


def test_every_peer_has_an_adapter_an_environment_and_a_name_of_its_own() -> None:
    for peer in PEERS:
        assert peer.adapter in ENVIRONMENTS or peer.adapter in PACKAGES
        assert (ADAPTERS / f"drain_{peer.adapter}.py").exists() or (ADAPTERS / peer.adapter).is_dir()
        assert peer.safe or peer.loses, f"{peer.name} on {peer.storage} does not say what it loses"
    assert len({(peer.storage, peer.name) for peer in PEERS}) == len(PEERS)


def test_accoda_and_the_bare_engine_are_measured_beside_whoever_is_chosen() -> None:
    names = {peer.adapter for peer in chosen(["sqlite"], ["litequeue"])}
    assert names == {"accoda", "litequeue", "raw"}
    assert {peer.storage for peer in chosen(STORAGES, [])} == set(STORAGES)


SMALL = Sample(share=1.0, seconds=0.05, lateness=3)


def accoda_on_sqlite(**options: object) -> Peer:
    """A few thousand jobs in small batches, else in the setting of the catalogue's first entry."""
    mine = next(peer for peer in PEERS if peer.ours and peer.storage == "sqlite")
    return Peer("accoda", "sqlite", "Accoda", "", 4000, {**mine.options, "batch": 20, **options})


def test_every_measure_of_an_adapter_gives_its_values() -> None:
    with PLACES["sqlite"]() as place:
        bench = Bench(place, SMALL)
        drained = drain(bench, accoda_on_sqlite(), 2)
        assert drained["jobs"] == 4000
        assert drained["rate"] > 0
        assert drained["server"] == 0.0
        enqueued = put(bench, accoda_on_sqlite(), "enqueue")
        assert enqueued is not None
        assert enqueued["rate"] > 0
        late = lateness(bench, accoda_on_sqlite(), "latency")
        assert late is not None
        assert len(late["late"]) == 3


@pytest.mark.parametrize("storage", ["redis", "postgres"])
def test_a_bare_engine_that_is_idle_runs_each_job_as_it_comes(storage: str) -> None:
    need(lambda: find_program("redis-server") if storage == "redis" else find_postgres("postgres"))
    raw = next(peer for peer in CEILINGS if peer.storage == storage)
    with PLACES[storage]() as place:
        found = lateness(Bench(place, SMALL), raw, "latency")
    assert found is not None
    assert len(found["late"]) == 3


def test_a_worker_that_ends_early_is_an_error_with_its_last_words() -> None:
    raw = next(peer for peer in CEILINGS if peer.storage == "sqlite")
    broken = Peer(raw.name, "sqlite", "", "", 100, {"batch": "many", "lanes": 1})
    with (
        PLACES["sqlite"]() as place,
        pytest.raises(AdapterFailed, match=r"ended early, 0 of 20 jobs had run: .*mismatch"),
    ):
        drain(Bench(place, SMALL), broken, 1)


def plan(**more: object) -> Plan:
    given = {
        "storages": ["sqlite"],
        "names": ["accoda"],
        "measures": ["bytes"],
        "rounds": 1,
        "sample": {},
        "whole": False,
    }
    return Plan(**{**given, **more})  # type: ignore[arg-type]


def test_in_a_round_all_take_turns_at_each_measure_and_the_next_begins_with_another() -> None:
    found = [step for step, _ in steps(plan(measures=["enqueue", "drain1", "bytes"], rounds=2), "sqlite")]
    names = [step.name for step in found if (step.round, step.measure) == (0, "enqueue")]
    again = [step.name for step in found if (step.round, step.measure) == (1, "enqueue")]
    assert sorted(names) == sorted(again)
    assert names[0] != again[0]
    assert {step.measure for step in found if step.name == "raw"} == {"drain1"}
    assert {step.round for step in found if step.measure == "bytes"} == {0}


def test_an_interrupted_run_goes_on_with_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    todo = [step for step, _ in steps(plan(), "sqlite")]
    journal = Journal.begin(tmp_path / "part.jsonl", plan(sample={"share": 0.01}))
    journal.note_place("sqlite", {"about": "SQLite", "machine": "2 cores.", "date": "2026-11-16", "versions": {}})
    for step in todo[:-1]:
        journal.note(Result(step, 1.0, {"bytes": 123.0}))
    with journal.path.open("a") as file:
        file.write('{"step": {"storage": "sqli')  # where the power went
    main(["--continue", "--results", str(tmp_path)])
    assert capsys.readouterr().err.count("bytes:") == 1
    entries = {entry.name: entry for entry in load(tmp_path / "peers.json")["sqlite"].entries}
    assert [entries[step.name].middle("bytes", "bytes") for step in todo[:-1]] == [123.0] * (len(todo) - 1)
    assert (entries[todo[-1].name].middle("bytes", "bytes") or 0) > 20
    assert not journal.path.exists()


def test_without_an_interrupted_run_there_is_nothing_to_continue(tmp_path: Path) -> None:
    with pytest.raises(NothingToContinue, match="start one without --continue"):
        Journal.resume(tmp_path / "none.jsonl")
    (tmp_path / "odd.jsonl").write_text("something else\n")
    with pytest.raises(NothingToContinue, match="remove it and start anew"):
        Journal.resume(tmp_path / "odd.jsonl")


def test_what_failed_at_first_is_not_tried_again_and_what_failed_once_is(tmp_path: Path) -> None:
    journal = Journal.begin(tmp_path / "run.jsonl", plan(rounds=3))
    bad, good, odd = (Step("sqlite", name, "drain1", 0) for name in ("bad", "good", "odd"))
    journal.note(Result(bad, 1.0, failed="why"))
    journal.note(Result(good, 1.0, {"rate": 1.0}))
    journal.note(Result(odd, 1.0, none=True))
    journal.note(Result(Step("sqlite", "good", "drain1", 1), 1.0, failed="once"))
    later = [journal.is_hopeless(Step("sqlite", name, "drain1", 2)) for name in ("bad", "good", "odd", "new")]
    assert later == [True, False, True, False]
    assert journal.measured("sqlite", "bad", "drain1").absent == "failed: why"
    assert journal.measured("sqlite", "odd", "drain1").absent == "none"
    assert journal.measured("sqlite", "good", "drain1").values("rate") == [1.0, None, None]
    again = Journal.resume(journal.path)
    assert again.results == journal.results


def test_the_time_that_is_left_follows_from_what_was_seen(tmp_path: Path) -> None:
    journal = Journal.begin(tmp_path / "run.jsonl", plan(rounds=3))
    journal.note(Result(Step("sqlite", "a", "drain1", 0), 4.0, {"rate": 1.0}))
    journal.note(Result(Step("sqlite", "b", "drain1", 0), 8.0, {"rate": 1.0}))
    left = [Step("sqlite", "a", "drain1", 1), Step("sqlite", "new", "drain1", 0)]
    assert remaining(journal, left) == 4.0 + 6.0


def test_only_a_run_of_everything_is_published() -> None:
    def whole(*given: str) -> bool:
        return plan_of(options(given)).whole

    assert whole()
    assert whole("--storage", "redis", "--rounds", "5")
    for left_out in (["--quick"], ["--rounds", "2"], ["--peers", "huey"], ["--measures", "bulk"], ["--jobs", "100"]):
        assert not whole(*left_out)


def test_bad_names_are_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options(["--measures", "speed"])
    assert "there is no speed; choose from enqueue, callers, bulk, drain1" in capsys.readouterr().err


def test_a_journal_is_lines_of_json(tmp_path: Path) -> None:
    journal = Journal.begin(tmp_path / "run.jsonl", plan())
    journal.note(Result(Step("sqlite", "a", "drain1", 0), 4.0, {"rate": 1.0}))
    assert [next(iter(json.loads(line))) for line in journal.path.read_text().splitlines()] == ["plan", "step"]
