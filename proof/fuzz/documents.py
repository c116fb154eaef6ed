"""Documents in the store: heartbeats, the manager's word, progress. Whatever one says, it may stop no worker."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from accoda.model import Document, QueueStats, Stats
from accoda.payload import read_json
from accoda.runtime.heartbeat import Heartbeat, ProcessorState, QueueRate, encode, read_heartbeat
from accoda.runtime.manager.learning import FleetView, learn, remember, situation
from accoda.runtime.manager.manager import Leader
from accoda.runtime.manager.rule import Assignment, Plan, assign, limits
from accoda.runtime.results import Progress
from proof.fuzz.target import Target

_STATS = Stats({"emails": QueueStats(10, 5, 5, 0, 0), "reports": QueueStats(200, 200)})
_GOOD = Heartbeat(
    "w1",
    "default",
    "host",
    7,
    1,
    2_000,
    ("emails", "reports"),
    4,
    (ProcessorState("emails", 5, 17, 1_000), ProcessorState()),
    {"emails": QueueRate(10.0, 2.0)},
    {"emails": 2},
)
_OTHER = msgspec.structs.replace(_GOOD, id="w2")
_WORD = Assignment({"w1": {"emails": 3, "reports": 1}}, {"emails": Plan(5, 5, 0.5, 2.0, 3, 4.0)}, 3, "w1", 5)
_TOKENS = (
    *(
        b"-1",
        b"0",
        b"1e308",
        b"1e-308",
        b"1e999",
        b"9" * 30,
        b"9007199254740993",
        b"null",
        b"true",
        b'""',
        b"[]",
        b"{}",
    ),
    *(b'"\\ud800"', b'"\xff"', b"10000", b"0.1", b"\x00", b"[" * 50, b"NaN", b'"emails"', b'"w1"'),
)


def targets() -> list[Target]:
    """All of them are read with errors as "cannot be read", so none may raise."""

    def target(name: str, decode: Callable[[bytes], object], seed: bytes) -> Target:
        return Target(f"document: {name}", decode, [seed], (), _TOKENS)

    return [
        target("heartbeat", _heartbeat, encode(_GOOD)),
        target("assignment", _assignment, msgspec.json.encode(_WORD)),
        target("leader", lambda data: read_json(data, Leader), msgspec.json.encode(Leader("w1", 3))),
        target("progress", lambda data: read_json(data, Progress), msgspec.json.encode(Progress(0.5, "half ü"))),
    ]


def _heartbeat(data: bytes) -> None:
    """Read it, and decide with it: beside a good worker, now and at the next look."""
    heartbeat = read_heartbeat(Document("worker/w1", data, 1))
    if heartbeat is not None:
        first = FleetView(_STATS, [_OTHER, heartbeat], 1_000)
        known = learn(first, None, {})
        second = FleetView(_STATS, [heartbeat], 3_000)
        word = assign(situation(first, known))
        assign(situation(second, learn(second, first, known)), word)


def _assignment(data: bytes) -> None:
    """Hear it, follow it, and take over from it."""
    word = read_json(data, Assignment)
    if word is not None:
        limits(word, "w1", ["emails", "reports"], 8)
        look = FleetView(_STATS, [_GOOD], 1_000)
        assign(situation(look, learn(look, None, remember(word.plans))), word)
