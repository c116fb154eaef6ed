"""`set_lanes` and `lanes`, over shards, and the rules as the text that is stored: see lua/parts/lane.lua.

In a store with partitions every partition has the rules of a queue, and keeps to them by itself. The jobs of a lane are
in one partition, except those that have keys: for these a limit holds in each partition, and `total` does for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from accoda.model import LaneInfo, Lanes, LanesInfo
from accoda.storage.redis.client import Client
from accoda.storage.redis.keys import Keys, Shard
from accoda.storage.redis.scripts import script
from accoda.storage.redis.shards import Shards

_SET_LANES, _LANES = script("set_lanes"), script("lanes")
_Counts = dict[str, list[int]]  # by lane: ready, held, taken


class LaneVerbs:
    def __init__(self, keys: Keys, client: Client, shards: Shards) -> None:
        self._keys = keys
        self._client = client
        self._shards = shards

    async def set_lanes(self, queue: str, rules: Lanes | None) -> None:
        text = "" if rules is None else _rules_text(rules)
        own = [] if rules is None else _own_rules(rules)
        for shard in self._shards.of_queue(queue):
            if self._shards.single is None:
                await self._shards.registered(shard.tag)
            await self._balance(shard, queue, "set", text, *own)

    async def mend(self, shard: Shard, queue: str) -> None:
        """Forget what damaged records have left in their lanes."""
        await self._balance(shard, queue, "mend")

    async def _balance(self, shard: Shard, queue: str, what: str, rules: str = "", *own: str) -> None:
        """In pieces; the first also sets the rules."""
        keys = self._keys_of(shard, queue)
        after = await self._client.run(_SET_LANES, shard, keys, queue, "", what, rules, *own, writes=True)
        while after:
            what = "" if what == "set" else what
            after = await self._client.run(_SET_LANES, shard, keys, queue, after, what, "", writes=True)

    async def lanes(self, queue: str, limit: int) -> LanesInfo:
        rules = None
        counts: _Counts = {}
        for shard in self._shards.of_queue(queue):
            found = await self._count(shard, queue, counts)
            rules = rules or found
        lanes = [LaneInfo(lane, *numbers) for lane, numbers in counts.items()]
        lanes.sort(key=lambda each: (-each.ready - each.held, each.lane))
        return LanesInfo(rules, tuple(lanes[:limit]), len(lanes))

    async def _count(self, shard: Shard, queue: str, counts: _Counts) -> Lanes | None:
        """Add the jobs of a shard to the counts, and give its rules."""
        keys = self._keys_of(shard, queue)
        text, own, taken, after, *told = await self._client.run(_LANES, shard, keys, "")
        for lane, count in _pairs(taken):
            _add(counts, lane, 0, 0, count)
        while True:
            for lane, ready, held in zip(told[::3], told[1::3], told[2::3], strict=True):
                _add(counts, lane, ready, held, 0)
            if not after:
                return _read_rules(text, own)
            after, *told = await self._client.run(_LANES, shard, keys, after)

    def _keys_of(self, shard: Shard, queue: str) -> list[str]:
        return [shard.queues, self._keys.bases[queue, shard.partition]]


def _pairs(flat: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(islice(flat, 0, None, 2), islice(flat, 1, None, 2), strict=True)


def _add(counts: _Counts, lane: bytes, *numbers: int | bytes) -> None:
    name = lane.decode(errors="replace")
    before = counts.get(name, [0, 0, 0])
    counts[name] = [one + int(other) for one, other in zip(before, numbers, strict=True)]


def _rules_text(rules: Lanes) -> str:
    limit, total = ("" if number is None else number for number in (rules.limit, rules.total))
    has_own = bool(rules.limits or rules.weights)
    return f"{limit},{rules.fair:d},{rules.by_cost:d},{total},{has_own:d}"


def _own_rules(rules: Lanes) -> list[str]:
    """Lane, limit and weight for each lane that has some: the limit is "-" where it is lifted."""
    args: list[str] = []
    for lane in {**rules.limits, **rules.weights}:
        limit = rules.limits.get(lane, "")
        weight = rules.weights.get(lane)
        args += (lane, f"{'-' if limit is None else limit},{'' if weight is None else repr(float(weight))}")
    return args


def _read_rules(text: bytes, own: Sequence[bytes]) -> Lanes | None:
    if not text:
        return None
    limit, fair, by_cost, total, _ = text.decode().split(",")
    limits: dict[str, int | None] = {}
    weights: dict[str, float] = {}
    for lane, each in _pairs(own):
        its_limit, weight = each.decode().split(",")
        if its_limit:
            limits[lane.decode()] = None if its_limit == "-" else int(its_limit)
        if weight:
            weights[lane.decode()] = float(weight)
    return Lanes(
        int(limit) if limit else None, limits, fair == "1", weights, by_cost == "1", int(total) if total else None
    )
