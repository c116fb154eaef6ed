"""`peek` and `drop`: the verbs that look at a job, and act on what was seen. Those of many tasks go together."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Sequence
from typing import cast

from accoda.model import Lease, Peek
from accoda.storage.redis.caller import Caller
from accoda.storage.redis.connection import Argument
from accoda.storage.redis.encode import described, id_text
from accoda.storage.redis.keys import LAST_ID, Keys, Shard
from accoda.storage.redis.outbox import Outbox
from accoda.storage.redis.scripts import script
from accoda.storage.redis.shards import Shards
from accoda.storage.redis.together import Kind, Shared
from accoda.storage.redis.types import WrongType, expected

_PEEK, _DROP = script("peek"), script("drop")
_Look = tuple[str, str | None, int | None]  # queue, key, after
_Drop = tuple[str, int, int]  # queue, id, waiters


class Looks:
    def __init__(self, keys: Keys, caller: Caller, shards: Shards, outbox: Outbox, together: Shared) -> None:
        self._keys = keys
        self._caller = caller
        self._shards = shards
        self._outbox = outbox
        self._together = together
        self._peeks: Kind[_Look, Peek] = Kind(self._peek_joined)
        self._drops: Kind[_Drop, bool] = Kind(self._drop_joined)

    async def peek(self, queue: str, key: str | None, after: int | None) -> Peek:
        look = (queue, key, after)
        found = Peek(0)
        for shard in self._shards.of_key(queue, key) if key is not None else self._shards.next_in_turn(queue):
            found = await self._peek_in(shard, look)
            if found.job is not None:
                if self._shards.single is None:
                    self._outbox.saw([found.job])
                break
        return found

    async def _peek_in(self, shard: Shard, look: _Look) -> Peek:
        async def alone() -> Peek:
            return (await self._peek(shard, [look]))[0]

        return await self._together.to(shard).call(self._peeks, shard, look, 1, alone)

    async def _peek_joined(self, key: Hashable, looks: list[_Look], _: list[asyncio.Future[Peek]]) -> list[Peek]:
        shard = cast(Shard, key)
        try:
            return await self._peek(shard, looks)
        except WrongType:  # one of the queues is damaged: the looks at others need not fail with it
            alone = await asyncio.gather(*(self._peek(shard, [look]) for look in looks), return_exceptions=True)
            return [cast(Peek, each) if isinstance(each, BaseException) else each[0] for each in alone]

    async def _peek(self, shard: Shard, looks: Sequence[_Look]) -> list[Peek]:
        """Those who look at the same job share one look: a thousand at one key do not read its waiters a thousand
        times. It passes over as many waiters as the one who knows least."""
        least: dict[tuple[str, str | None], int | None] = {}
        for queue, key, after in looks:
            known = least.setdefault((queue, key), after)
            if after is not None and (known is None or after < known):
                least[queue, key] = after
        found: dict[tuple[str, str | None], Peek] = {}
        while len(found) < len(least):  # each time at least the first of the rest is answered
            found |= await self._ask(shard, {place: after for place, after in least.items() if place not in found})
        return [_without(found[queue, key], least[queue, key], after) for queue, key, after in looks]

    async def _ask(
        self, shard: Shard, looks: dict[tuple[str, str | None], int | None]
    ) -> dict[tuple[str, str | None], Peek]:
        numbers = _numbers(queue for queue, _ in looks)
        args: list[Argument] = []
        for (queue, key), after in looks.items():
            args += (numbers[queue], "" if key is None else f"={key}", "" if after is None else after)
        bases = [self._keys.base(queue, shard.partition) for queue in numbers]
        moment, *replies = await self._caller.run(_PEEK, shard, [shard.queues, *bases], *args)
        at = int(moment)
        return {
            place: Peek(at, described(place[0], reply[1:]), tuple(reply[0])) if reply else Peek(at)
            for place, reply in zip(looks, replies, strict=True)
            if reply != 0
        }

    async def drop(self, queue: str, id: int, waiters: int) -> bool:
        if id > LAST_ID:
            return False
        shard = await self._shards.of_lease(Lease(queue, id, 0))
        wish = (queue, id, waiters)

        async def alone() -> bool:
            (answer,) = await self._drop(shard, [wish])
            if isinstance(answer, WrongType):
                raise answer
            return answer

        return await self._together.to(shard).call(self._drops, shard, wish, 1, alone)

    async def _drop_joined(self, key: Hashable, wishes: list[_Drop], _: list[asyncio.Future[bool]]) -> list[bool]:
        # One after the other in one step, as if each had been sent by itself; of two for the same job the first has it.
        return cast(list[bool], await self._drop(cast(Shard, key), wishes))

    async def _drop(self, shard: Shard, wishes: Sequence[_Drop]) -> list[bool | WrongType]:
        numbers = _numbers(queue for queue, _, _ in wishes)
        args: list[Argument] = []
        for queue, id, waiters in wishes:
            args += (numbers[queue], id_text(id), waiters)
        bases = [self._keys.base(queue, shard.partition) for queue in numbers]
        answer: bytes = await self._caller.once(_DROP, shard, [shard.queues, *bases], *args)
        return [await self._dropped(shard, queue, answer[n]) for n, (queue, _, _) in enumerate(wishes)]

    async def _dropped(self, shard: Shard, queue: str, digit: int) -> bool | WrongType:
        if digit == ord("!"):  # a key of this queue is of another type, which need not stop the others
            base = self._keys.base(queue, shard.partition)
            return await self._caller.name_wrong_type(shard.slot, expected(("EVAL", "", 1, base)))
        return digit == ord("1")


def _numbers(queues: Iterable[str]) -> dict[str, int]:
    """Each queue once, with its number as the scripts count."""
    return {queue: number for number, queue in enumerate(dict.fromkeys(queues), 1)}


def _without(found: Peek, told_after: int | None, after: int | None) -> Peek:
    """What one of those who shared a look asked for."""
    if after == told_after:
        return found
    waiters = () if after is None or told_after is None else found.waiters[after - told_after :]
    return Peek(found.at, found.job, waiters)
