"""The delivery of a result to one waiter, as a job of its own.

A delivery names the result instead of holding it: a thousand waiters share one stored result. If the result is gone
(because the delivery kept failing for longer than results are kept), the waiter joins the next fetch.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from accoda.demand.records import CachedResult, DeliveryPayload, DemandContext, RunCodec, read_cached, stored_key
from accoda.demand.waiters import Waiter
from accoda.model import ByKey, Job, Lease, Outcome
from accoda.payload import Codec, UnreadablePayload
from accoda.storage.protocol import Store

_REMEMBERED = 64
"""Decoded results that a worker keeps."""


class DeliveryRun(Struct, frozen=True):
    """What a run is told. `missing`: the result is gone; without a waiter, it is a bundle."""

    delivery: DeliveryPayload
    waiter: Waiter[Any] | None = None
    value: Any = None
    missing: bool = False


class DeliveryHooks:
    """What happens around the runs of deliveries. `data` reads a waiter's data; `result` is the type that `deliver`
    takes."""

    def __init__(self, demand: DemandContext, data: Codec[Any], result: Any) -> None:
        self.codec = RunCodec(DeliveryPayload)
        self._demand = demand
        self._data = data
        self._result: Codec[Any] = Codec(result)
        self._values: OrderedDict[tuple[str, int], Any] = OrderedDict()

    async def opening(self, store: Store, jobs: Sequence[Job]) -> None:
        deliveries: dict[Lease, DeliveryPayload] = {}
        for job in jobs:
            try:
                deliveries[job.lease] = self.codec.decode(job.data)
            except UnreadablePayload as error:
                self.codec.prepare(job.lease, error)
        keys = {delivery.key for delivery in deliveries.values()}
        looks = await asyncio.gather(*(store.look(ByKey(self._demand.cache_queue, stored_key(key))) for key in keys))
        cached = {key: read_cached(look.job) for key, look in zip(keys, looks, strict=True)}
        for lease, delivery in deliveries.items():
            try:
                self.codec.prepare(lease, self._run(delivery, cached[delivery.key]))
            except UnreadablePayload as error:
                self.codec.prepare(lease, error)

    def _run(self, delivery: DeliveryPayload, cached: CachedResult | None) -> DeliveryRun:
        if delivery.more:
            return DeliveryRun(delivery)
        if cached is None or cached.fetched_at < delivery.fetched_at:
            return DeliveryRun(delivery, missing=True)
        to = delivery.to
        waiter = Waiter(to.id, to.tier, to.due, self._data.decode(to.data))
        return DeliveryRun(delivery, waiter, self._value(delivery.key, cached))

    def _value(self, key: str, cached: CachedResult) -> Any:
        known = (key, cached.fetched_at)
        if known not in self._values:
            self._values[known] = self._result.decode(cached.result)
            if len(self._values) > _REMEMBERED:
                self._values.popitem(last=False)
        return self._values[known]

    async def ending(self, store: Store, outcomes: Sequence[Outcome]) -> list[Outcome]:
        return list(outcomes)

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        self._demand.counters.delivered(outcomes)


def runner(demand: DemandContext, function: Callable[[Waiter[Any], Any], Any]) -> Callable[[Any], Any]:
    """The user's function as the handler of deliveries."""

    def is_due(run: DeliveryRun) -> bool:
        if run.missing:
            demand.join_again(run.delivery)
        elif run.waiter is None:
            demand.unpack(run.delivery)
        return run.waiter is not None

    async def on_loop(run: DeliveryRun) -> None:
        if is_due(run):
            await function(run.waiter, run.value)  # type: ignore[arg-type]

    def in_thread(run: DeliveryRun) -> None:
        if is_due(run):
            function(run.waiter, run.value)  # type: ignore[arg-type]

    return on_loop if inspect.iscoroutinefunction(inspect.unwrap(function)) else in_thread
