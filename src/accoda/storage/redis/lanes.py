"""`set_lanes` and `lanes`, over shards, and the rules as the text that is stored: see lua/parts/rules.lua.

In a store with partitions every partition has the rules of a queue, and keeps to them by itself. The jobs of a lane are
in one partition, except those that have keys: for these a limit holds in each partition, and `total` does for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from accoda.errors import InvalidInput
from accoda.model import LaneInfo, Lanes, LanesInfo
from accoda.storage.redis.client import Client
from accoda.storage.redis.keys import Keys, Shard, family
from accoda.storage.redis.scripts import script
from accoda.storage.redis.shards import Shards

_SET_LANES, _BALANCE, _LANES = script("set_lanes"), script("balance"), script("lanes")
AT_ONCE = 1000  # lanes in one step, so that the server is never busy for long


class LaneVerbs:
    def __init__(self, keys: Keys, client: Client, shards: Shards) -> None:
        self._keys = keys
        self._client = client
        self._shards = shards

    async def set_lanes(self, queue: str, rules: Lanes | None) -> None:
        if self._shards.single is None and rules is not None:
            _check_group(queue, rules.shared)
        text = "" if rules is None else _rules_text(rules)
        own = [] if rules is None else _own_rules(rules)
        mark = self._client.new_name()
        for shard in self._shards.of_queue(queue):
            if self._shards.single is None:
                await self._shards.registered(shard.tag)
            keys = self._keys_of(shard, queue)
            left: bytes = await self._client.once(_SET_LANES, shard, keys, queue, mark, text, *own)
            if left:
                await self._balance(shard, left.decode().split(","), mark)

    async def mend(self, shard: Shard, queue: str) -> None:
        """Forget what damaged records have left in their lanes."""
        await self._balance(shard, [queue], "mend")

    async def _balance(self, shard: Shard, queues: Sequence[str], what: str) -> None:
        """All lanes of these queues, in pieces. One that comes meanwhile is balanced by the step that it comes with."""
        bases = [self._keys.bases[queue, shard.partition] for queue in queues]
        lanes = sorted({lane for base in bases for lane in await self._names(shard, base)})
        done, is_last = 0, False
        while not is_last or done < len(lanes):
            piece = lanes[done : done + AT_ONCE]
            is_last = done + len(piece) == len(lanes)
            keys = [shard.queues, *bases]
            done += await self._client.run(_BALANCE, shard, keys, what, int(is_last), *piece, writes=True)

    async def _names(self, shard: Shard, base: str) -> list[bytes]:
        names: list[bytes] = []
        cursor: bytes | str = "0"
        while cursor != b"0":
            cursor, page = await self._client.command(shard.slot, "HSCAN", f"{base}:lanes", cursor, "COUNT", AT_ONCE)
            names += page[::2]
        return names

    async def lanes(self, queue: str, limit: int) -> LanesInfo:
        rules = None
        counts: dict[str, list[int]] = {}  # by lane: ready, held, taken
        for shard in self._shards.of_queue(queue):
            text, own = await self._client.run(_LANES, shard, self._keys_of(shard, queue), "rules")
            rules = rules or _read_rules(text, own)
            for lane, numbers in (await self._count(shard, queue) if limit else {}).items():
                name = lane.decode(errors="replace")
                before = counts.get(name, [0, 0, 0])
                counts[name] = [one + int(other) for one, other in zip(before, numbers, strict=True)]
        lanes = [LaneInfo(lane, *numbers) for lane, numbers in counts.items()]
        lanes.sort(key=lambda each: (-each.ready - each.held, each.lane))
        return LanesInfo(rules, tuple(lanes[:limit]), len(lanes))

    async def _count(self, shard: Shard, queue: str) -> dict[bytes, tuple[int, int, int]]:
        """The jobs of a shard, by lane. A lane may be told of twice."""
        counts = {}
        cursor: bytes | str = "0"
        while cursor != b"0":
            cursor, *told = await self._client.run(_LANES, shard, self._keys_of(shard, queue), cursor)
            each = iter(told)
            counts.update({lane: (ready, held, taken) for lane, ready, held, taken in zip(*[each] * 4, strict=True)})
        return counts

    def _keys_of(self, shard: Shard, queue: str) -> list[str]:
        return [shard.queues, self._keys.bases[queue, shard.partition]]


def _check_group(queue: str, shared: str | None) -> None:
    """In a Cluster, a step reaches the queues of one family."""
    own = family(queue)
    if shared is not None and shared != own:
        raise InvalidInput(
            "shared",
            f"on a Redis Cluster the queue {queue!r} can share limits only as {own!r}, with queues whose names begin "
            f"with it ({own!r}, {own + '.sync'!r}, ...), not as {shared!r}; rename those that are to share limits, "
            "so that they have the same part before the first dot",
        )


def _pairs(flat: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(islice(flat, 0, None, 2), islice(flat, 1, None, 2), strict=True)


def _rules_text(rules: Lanes) -> str:
    limit, total = ("" if number is None else number for number in (rules.limit, rules.total))
    has_own = bool(rules.limits or rules.weights)
    return f"{limit},{rules.fair:d},{rules.by_cost:d},{total},{has_own:d},{rules.shared or ''}"


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
    limit, fair, by_cost, total, _, shared = text.decode().split(",")
    limits: dict[str, int | None] = {}
    weights: dict[str, float] = {}
    for lane, each in _pairs(own):
        its_limit, weight = each.decode().split(",")
        if its_limit:
            limits[lane.decode()] = None if its_limit == "-" else int(its_limit)
        if weight:
            weights[lane.decode()] = float(weight)
    return Lanes(
        limit=int(limit) if limit else None,
        limits=limits,
        fair=fair == "1",
        weights=weights,
        by_cost=by_cost == "1",
        total=int(total) if total else None,
        shared=shared or None,
    )
