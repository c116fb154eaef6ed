"""What a demand and its budgets store: waiters, errands, cached results, deliveries, numbers, accounts."""

from __future__ import annotations

import msgspec

from accoda.budget import Ask, Budget, ledger
from accoda.demand.counters import Counts, add
from accoda.demand.delivering import DeliveryCodec
from accoda.demand.fetching import FetchCodec, plan
from accoda.demand.records import Cached, Delivery, Errand, RecordCodec, write
from accoda.demand.score import SEED, band, score
from accoda.demand.standing import QueueMetrics
from accoda.demand.waiters import JOINS, LEAVES, Entry, Log, present, read_entries, write_entry
from accoda.model import Job, Lease
from accoda.payload import UnreadablePayload, read_json
from accoda.testing.fuzz.target import Target

_NOW = 1_700_000_000_000
_ENTRY = Entry(JOINS, "anna", "pro", _NOW, _NOW, msgspec.msgpack.encode({"least": 7}))
_CACHED = Cached(_NOW, msgspec.msgpack.encode([1, "two"]))


def targets() -> list[Target]:
    bad = (UnreadablePayload,)
    many = Delivery("books", _ENTRY, _NOW, (_ENTRY, _ENTRY))
    return [
        Target("demand: waiter", _waiter, [write_entry(_ENTRY), write_entry(Entry(LEAVES, "anna"))]),
        Target("demand: errand", _errand, [write(Errand("books")), write(Errand("books", True, _NOW))], bad),
        Target("demand: cached", RecordCodec(Cached).decode, [write(_CACHED)], bad),
        Target("demand: delivery", _delivery, [write(Delivery("books", _ENTRY, _NOW)), write(many)], bad),
        Target("demand: metrics", lambda data: read_json(data, QueueMetrics), [msgspec.json.encode(QueueMetrics())]),
        Target("budget: accounts", _accounts, [_ledger()]),
        Target("demand: counts", _counts, [msgspec.json.encode(Counts(cached=3, created=1))]),
    ]


def _waiter(data: bytes) -> None:
    """Read it, rank with it, and serve it beside a good one."""
    stored = [data, write_entry(_ENTRY), data]
    log = Log(1, SEED)
    log.add(stored)
    band(score(log.crowd, _NOW, SEED))
    plan(Errand("books"), present(read_entries(stored)), _CACHED, _NOW, 1000)


def _errand(data: bytes) -> None:
    plan(FetchCodec().decode(data), {}, _CACHED, _NOW, 1000)


def _delivery(data: bytes) -> None:
    codec = DeliveryCodec(dict[str, int], list[object])
    codec.results = {"books": (_NOW, _CACHED.result)}
    codec.open(Job(1, "deals.deliver", data, 0.0, 0, None, 0, 0, 0, None, 0, Lease("deals.deliver", 1, 0)))


_DESK = ledger.Desk({"keepa": Budget("keepa", capacity=20, refill=20, per=60)}, _NOW)
_ASK = Ask("deals", ("keepa",), head_cost=5)


def _ledger() -> bytes:
    """Accounts with something reserved, claimed and observed in them."""
    kept, _ = ledger.reserve(ledger.Ledger(), _DESK, msgspec.structs.replace(_ASK, head_cost=18), "one")
    kept, _ = ledger.reserve(kept, _DESK, msgspec.structs.replace(_ASK, queue="other"), "two")
    return ledger.encode(kept, _NOW)


def _accounts(data: bytes) -> None:
    """Read them, look at them, and reserve."""
    found = ledger.decode(data, _NOW)
    ledger.views(found, _DESK)
    ledger.encode(ledger.reserve(found, _DESK, _ASK, "three")[0], _NOW)


def _counts(data: bytes) -> None:
    counts = read_json(data, Counts)
    if counts is not None:
        assert add(counts, Counts()).hit_rate is not None
