"""What a demand and its budgets store: waiters, fetches, cached results, deliveries, numbers, accounts."""

from __future__ import annotations

import msgspec

from accoda.budget import Ask, Budget, ledger
from accoda.demand.fetching import plan
from accoda.demand.metrics import Counts, QueueMetrics, add
from accoda.demand.records import CachedResult, DeliveryPayload, DemandCodec, FetchPayload, write
from accoda.demand.score import DEFAULT_WEIGHTS, band, score
from accoda.demand.waiters import JOINS, LEAVES, Entry, WaiterLog, present, read_entries, write_entry
from accoda.demand.waiting import Count
from accoda.payload import Codec, UnreadablePayload, read_json
from proof.fuzz.target import Target

_NOW = 1_700_000_000_000
_ENTRY = Entry(JOINS, "anna", "pro", _NOW, _NOW, msgspec.msgpack.encode({"least": 7}))
_CACHED = CachedResult(_NOW, msgspec.msgpack.encode([1, "two"]))

_COUNT = Count(waiting=QueueMetrics(at=_NOW, depth=3), marks=(1, 2), next_at=_NOW)


def targets() -> list[Target]:
    bad = (UnreadablePayload,)
    many = DeliveryPayload("books", _ENTRY, _NOW, (_ENTRY, _ENTRY))
    return [
        Target("demand: waiter", _waiter, [write_entry(_ENTRY), write_entry(Entry(LEAVES, "anna"))]),
        Target("demand: fetch", _fetch, [write(FetchPayload("books")), write(FetchPayload("books", True, _NOW))], bad),
        Target("demand: cached", DemandCodec(CachedResult).decode, [write(_CACHED)], bad),
        Target("demand: delivery", _delivery, [write(DeliveryPayload("books", _ENTRY, _NOW)), write(many)], bad),
        Target("demand: metrics", lambda data: read_json(data, Count), [msgspec.json.encode(_COUNT)]),
        Target("budget: accounts", _accounts, [_ledger()]),
        Target("demand: counts", _counts, [msgspec.json.encode(Counts(cached=3, created=1))]),
    ]


def _waiter(data: bytes) -> None:
    """Read it, rank with it, and serve it beside a good one."""
    stored = [data, write_entry(_ENTRY), data]
    log = WaiterLog(1, DEFAULT_WEIGHTS)
    log.add(stored)
    band(score(log.crowd, _NOW, DEFAULT_WEIGHTS))
    plan(FetchPayload("books"), present(read_entries(stored), None), _CACHED, _NOW, 1000)


def _fetch(data: bytes) -> None:
    plan(DemandCodec(FetchPayload).decode(data), {}, _CACHED, _NOW, 1000)


def _delivery(data: bytes) -> None:
    delivery = DemandCodec(DeliveryPayload).decode(data)
    Codec(dict[str, int]).decode(delivery.to.data)


_BASIS = ledger.Basis({"keepa": Budget("keepa", capacity=20, refill=20, per=60)}, _NOW)
_ASK = Ask("deals", ("keepa",), head_cost=5)


def _ledger() -> bytes:
    """Accounts with something reserved, claimed and observed in them."""
    kept, _ = ledger.reserve(ledger.Ledger(), _BASIS, msgspec.structs.replace(_ASK, head_cost=18), "one")
    kept, _ = ledger.reserve(kept, _BASIS, msgspec.structs.replace(_ASK, queue="other"), "two")
    return ledger.encode(kept, _NOW)


def _accounts(data: bytes) -> None:
    """Read them, look at them, and reserve."""
    found = ledger.decode(data, _NOW)
    ledger.views(found, _BASIS)
    ledger.encode(ledger.reserve(found, _BASIS, _ASK, "three")[0], _NOW)


def _counts(data: bytes) -> None:
    counts = read_json(data, Counts)
    if counts is not None:
        assert add(counts, Counts()).hit_rate is not None
