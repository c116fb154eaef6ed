"""The delivery of a result to one waiter, as a job of its own.

A delivery names the result instead of holding it: a thousand waiters share one stored result. Where that has gone (the
delivery kept failing for longer than results are kept), the waiter joins the next fetch.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from accoda.demand.records import Delivery, RecordCodec, read_cached
from accoda.demand.waiters import Waiter
from accoda.model import Job, Outcome
from accoda.payload import Codec, UnreadablePayload
from accoda.storage.protocol import Store

if TYPE_CHECKING:
    from accoda.demand.demand import Demand

_REMEMBERED = 64
"""Decoded results that a worker keeps at hand."""


class Parcel(Struct, frozen=True):
    """What a delivery's run is told. `missing`: the result has gone; no waiter: it is a bundle."""

    delivery: Delivery
    waiter: Waiter[Any] | None = None
    value: Any = None
    missing: bool = False


class DeliveryCodec(RecordCodec):
    """The payload of a delivery, with the result that `opening` has read."""

    def __init__(self, data: Any, result: Any) -> None:
        super().__init__(Delivery)
        self._data: Codec[Any] = Codec(data)
        self._result: Codec[Any] = Codec(result)
        self._values: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self.results: dict[str, tuple[int, bytes]] = {}

    def open(self, job: Job) -> Parcel:
        delivery: Delivery = self.decode(job.data)
        if delivery.more:
            return Parcel(delivery)
        fetched_at, result = self.results.get(delivery.key, (-1, b""))
        if fetched_at < delivery.fetched_at:
            return Parcel(delivery, missing=True)
        to = delivery.to
        waiter = Waiter(to.id, to.tier, to.due, self._data.decode(to.data))
        return Parcel(delivery, waiter, self._value(delivery.key, fetched_at, result))

    def _value(self, key: str, fetched_at: int, result: bytes) -> Any:
        known = (key, fetched_at)
        if known not in self._values:
            self._values[known] = self._result.decode(result)
            if len(self._values) > _REMEMBERED:
                self._values.popitem(last=False)
        return self._values[known]


class Delivering:
    """The rites of a demand's deliveries."""

    def __init__(self, demand: Demand, codec: DeliveryCodec) -> None:
        self._demand = demand
        self._codec = codec

    async def opening(self, store: Store, jobs: Sequence[Job]) -> None:
        keys: dict[str, None] = {}
        for job in jobs:
            try:
                keys[self._codec.decode(job.data).key] = None
            except UnreadablePayload:
                continue  # it is buried when it is opened
        looks = await asyncio.gather(*(store.peek(self._demand.cache_queue, key) for key in keys))
        found = ((key, read_cached(look.job)) for key, look in zip(keys, looks, strict=True))
        self._codec.results = {key: (cached.fetched_at, cached.result) for key, cached in found if cached is not None}

    async def ending(self, store: Store, outcomes: Sequence[Outcome]) -> list[Outcome]:
        return list(outcomes)

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        self._demand.counters.delivered(outcomes)


def runner(demand: Demand, function: Callable[[Waiter[Any], Any], Any]) -> Callable[[Any], Any]:
    """The user's function as the handler of deliveries."""

    def there(parcel: Parcel) -> bool:
        if parcel.missing:
            demand.join_again(parcel.delivery)
        elif parcel.waiter is None:
            demand.unpack(parcel.delivery)
        return parcel.waiter is not None

    async def on_loop(parcel: Parcel) -> None:
        if there(parcel):
            await function(parcel.waiter, parcel.value)  # type: ignore[arg-type]

    def in_thread(parcel: Parcel) -> None:
        if there(parcel):
            function(parcel.waiter, parcel.value)  # type: ignore[arg-type]

    return on_loop if inspect.iscoroutinefunction(inspect.unwrap(function)) else in_thread
