"""Whatever the snapshot, the answer is a sentence, its estimate is in order, and every shut gate has a way out."""

import doctest
import importlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accoda.budget import Budget
from accoda.budget.model import Account, Claim, Counts, Hold
from accoda.limits import MOMENT
from accoda.model import AHEAD_AT_MOST, STATES, JobInfo, Look, QueueStats, State
from accoda.operations.history.reading import ServiceRate
from accoda.operations.queues import PauseNote
from accoda.operations.why import Explanation, Snapshot, explain
from accoda.operations.why.snapshot import Declared, QueueBudget
from accoda.runtime.heartbeat import Heartbeat, ProcessorState, QueueRate
from accoda.runtime.manager.rule import Assignment

NOW = 1_893_488_400_000
COUNTED: tuple[Counts, ...] = ("cost", "jobs")
NAMES = ("emails", "reports", "accoda.webhooks")
ORDER = ("delayed", "paused", "key", "budget", "workers", "line", "taken", "tries", "dead", "done", "cancelled")
moments = st.one_of(st.integers(NOW - 10**9, NOW + 10**9), st.integers(0, MOMENT))
counts = st.integers(0, 10**7)
texts = st.text(max_size=20) | st.just("long\n" * 80)
queues = st.sampled_from(NAMES)


@st.composite
def jobs(draw: st.DrawFn, state: State | None = None, id: int | None = None) -> JobInfo:
    return JobInfo(
        id=draw(st.integers(1, 1 << 62)) if id is None else id,
        queue=draw(queues),
        state=draw(st.sampled_from(STATES)) if state is None else state,
        data=b"",
        rank=draw(st.one_of(st.sampled_from((0.0, 1.0, 2.0, 3.0, -7.5)), st.floats(1e12, 2e12))),
        cost=draw(st.integers(0, 50)),
        key=draw(st.none() | texts.filter(bool)),
        attempts=draw(st.integers(0, 9)),
        created_at=draw(moments),
        start_time=draw(moments),
        prev_start_time=draw(st.none() | moments),
        waiters=draw(st.integers(0, 5)),
        keep_for=draw(st.floats(0, 1e9)),
        worker=draw(st.none() | st.sampled_from(("w1", "w2", "gone"))),
        taken_at=draw(st.none() | moments),
        lease_until=draw(st.none() | moments),
        ended_at=draw(st.none() | moments),
        tries=draw(st.integers(0, 9)),
        crashes=draw(st.integers(0, 3)),
    )


@st.composite
def beats(draw: st.DrawFn, id: str) -> Heartbeat:
    processors = st.builds(ProcessorState, st.none() | queues, st.integers(0, 100), st.none(), st.none() | moments)
    return Heartbeat(
        id,
        draw(texts),
        "host",
        1,
        NOW,
        draw(moments),
        tuple(draw(st.sets(queues, min_size=1))),
        draw(st.integers(0, 20)),
        tuple(draw(st.lists(processors, max_size=4))),
        rates=draw(st.dictionaries(queues, st.builds(QueueRate, st.floats(0, 1e12), st.floats(0, 1e12)))),
        caps=draw(st.dictionaries(queues, st.integers(0, 5))),
        ready=draw(st.booleans()),
        problem=draw(texts),
        draining=draw(st.booleans()),
        slots=draw(st.integers(0, 50)),
        free=draw(st.integers(0, 50)),
        concurrency=draw(st.dictionaries(queues, st.integers(0, 50))),
        batches=draw(st.dictionaries(queues, st.integers(0, 1000))),
    )


@st.composite
def budgets(draw: st.DrawFn) -> QueueBudget:
    capacity, refill, per = draw(st.floats(1, 100)), draw(st.floats(0.1, 100)), draw(st.floats(0.1, 1e5))
    rhythm = draw(st.sampled_from(("evenly", "step", "reset")))
    account = Account(
        capacity,
        refill,
        per,
        draw(st.floats(-100, capacity)),
        draw(st.integers(NOW - 10**9, NOW)),
        step_at=NOW + 5000 if rhythm == "step" else None,
        reset_at=NOW + 5000 if rhythm == "reset" else None,
        closed_until=draw(st.none() | moments),
        holds=draw(st.dictionaries(texts, st.builds(Hold, st.floats(0, 50), moments, moments), max_size=2)),
        claims=draw(st.dictionaries(queues, st.builds(Claim, st.floats(0, 50), moments, moments), max_size=2)),
        pace=draw(st.floats(0.1, 1)),
    )
    counted: Counts = draw(st.sampled_from(COUNTED))
    return QueueBudget(Budget("tokens", capacity, refill, per, counted, draw(st.floats(0, 0.9))), account)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    job = draw(jobs())
    stats = st.builds(
        QueueStats,
        ready=counts,
        taken=counts,
        oldest_age=st.floats(0, 1e9),
        paused=st.booleans(),
        paused_until=st.none() | moments,
    )
    ahead = draw(st.integers(0, AHEAD_AT_MOST + 1)) if job.state in ("ready", "delayed") else None
    rate = st.builds(
        ServiceRate, st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 600)
    )
    row = st.dictionaries(queues, st.integers(0, 5))
    return Snapshot(
        look=Look(NOW, job, ahead=ahead, newer=draw(st.integers(0, min(ahead or 0, AHEAD_AT_MOST)))),
        reason=draw(texts),
        declared=Declared(draw(st.booleans())),
        queues=draw(st.dictionaries(queues, stats)),
        workers=tuple(draw(beats(id)) for id in ("w1", "w2")[: draw(st.integers(0, 2))]),
        assignment=draw(st.none() | st.builds(Assignment, st.dictionaries(st.sampled_from(("w1", "w2")), row))),
        head=draw(st.none() | jobs("ready")),
        budgets=tuple(draw(st.lists(budgets(), max_size=2))),
        pause=draw(st.none() | st.builds(PauseNote, texts, texts, moments, st.none() | moments)),
        holder=draw(st.none() | jobs("ready")),
        rate=draw(st.none() | rate),
    )


def check(answer: Explanation) -> None:
    assert answer.line.strip() and answer.line.isprintable() and len(answer.line) < 1000
    names = [gate.name for gate in answer.gates]
    assert names == sorted(set(names), key=ORDER.index)
    shut = [gate for gate in answer.gates if gate.verdict == "shut"]
    if shut:
        assert answer.line.startswith(shut[0].text)
    for gate in answer.gates:
        assert gate.text.strip() and gate.text.isprintable(), gate
    for gate in shut:
        assert answer.sooner or any(name.lower().endswith(("until", "since", "at")) for name in gate.facts), gate
    assert all(line.strip() and line.isprintable() for line in answer.sooner)
    assert len(set(answer.sooner)) == len(answer.sooner)
    if answer.start is not None:
        assert answer.state in ("ready", "delayed")
        assert 0 <= answer.start.low <= answer.start.likely <= answer.start.high < float("inf"), answer.start
    assert (answer.position is not None) == (answer.state == "ready")


@settings(max_examples=80, deadline=None)
@given(snapshots())
def test_every_answer_is_whole(snapshot: Snapshot) -> None:
    check(explain(snapshot))


@pytest.mark.parametrize("module", ["records", "explain"])
def test_the_examples_in_the_code_are_right(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"accoda.operations.why.{module}"))
    assert found.attempted > 0 and found.failed == 0
