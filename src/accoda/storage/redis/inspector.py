"""`look`, `change`, `browse`, `pause`, `purge` and `stats`, over shards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import structs

from accoda.model import (
    AHEAD_AT_MOST,
    ENDED,
    ById,
    ByKey,
    Cancel,
    Change,
    Cursor,
    JobInfo,
    Look,
    NotCrashed,
    Order,
    QueueStats,
    Remove,
    Rerank,
    Revive,
    StartNow,
    State,
    Stats,
    Target,
)
from accoda.storage.common.call_batching import CallBatching
from accoda.storage.redis.client import Argument, Client
from accoda.storage.redis.jobs import job_info, rank_text, shares
from accoda.storage.redis.keys import LAST_ID, Keys, Shard
from accoda.storage.redis.outbox import Outbox
from accoda.storage.redis.scripts import script
from accoda.storage.redis.shards import Shards

_LOOK, _CHANGE, _BROWSE = script("look"), script("change"), script("browse")
_PAUSE, _PURGE, _STATS = script("pause"), script("purge"), script("stats")
_KINDS: dict[type, str] = {
    Remove: "remove",
    Cancel: "cancel",
    Revive: "revive",
    StartNow: "start",
    NotCrashed: "alive",
    Rerank: "rank",
}
AT_ONCE = 500  # jobs in one step, so that the server is never busy for long


_Question = tuple[str, Argument, str]  # a look as lua/look.lua takes it: what, after, ahead


class Inspector:
    def __init__(self, keys: Keys, client: Client, shards: Shards, outbox: Outbox) -> None:
        self._keys = keys
        self._client = client
        self._shards = shards
        self._outbox = outbox
        # Looks move nothing but what is due, and changes are applied one after the other: as if each had been sent
        # right after the others. Looks at one queue go together, for one call applies what is due in few queues only.
        self._looks = CallBatching(self._look_together)
        self._changes = CallBatching(self._change_together)

    # -- look

    async def look(self, target: Target, waiters_after: int | None, ahead: bool) -> Look:
        found = Look(0)
        queue = "" if isinstance(target, ById) else target.queue
        for shard, what in await self._places(target):
            question = (what, "" if waiters_after is None else waiters_after, "1" if ahead else "")
            found = await self._looks.call((shard, queue), question)
            if found.job is not None:
                self._saw([found.job])
                return await self._count_ahead(found, shard) if found.ahead is not None else found
        return found if found.at else Look(await self._now())

    async def _places(self, target: Target) -> list[tuple[Shard, str]]:
        """Where to look, and for what."""
        if isinstance(target, ById):
            shard = await self._shards.of_id(target.id)
            return [] if shard is None else [(shard, f"#{target.id:016d}")]
        if isinstance(target, ByKey):
            return [(shard, f"={target.key}") for shard in self._shards.of_key(target.queue, target.key)]
        return [(shard, "^") for shard in self._shards.next_in_turn(target.queue)]

    async def _now(self) -> int:
        """The storage's clock."""
        (shard, *_) = self._shards.of_queue("any")
        (moment,) = await self._client.run(_LOOK, shard, [shard.queues])
        return int(moment)

    async def _look_together(self, place: tuple[Shard, str], questions: list[_Question]) -> list[Look]:
        """Equal questions are asked once: a thousand looks at one key do not read its waiters a thousand times."""
        shard, queue = place
        names = [queue] if queue else await self._shards.names(shard)
        keys = [shard.queues, *self._bases(shard, names)]
        asked = list(dict.fromkeys(questions))
        args = [text for question in asked for text in question]
        moment, *replies = await self._client.run(_LOOK, shard, keys, *args)
        found = {question: _look(int(moment), names, reply) for question, reply in zip(asked, replies, strict=True)}
        return [found[question] for question in questions]

    async def _count_ahead(self, found: Look, shard: Shard) -> Look:
        """Add the jobs of other partitions that would be given before this one: by turn or rank, then by id."""
        job = found.job
        assert job is not None and found.ahead is not None
        ahead, newer = found.ahead, found.newer
        for other in self._shards.of_queue(job.queue):
            if other.root != shard.root:
                keys = [other.queues, *self._bases(other, [job.queue])]
                what = f"<{rank_text(job.rank if job.turn is None else job.turn)},{job.id:016d}"
                _, (more, newer_there) = await self._client.run(_LOOK, other, keys, what, "", "")
                ahead, newer = ahead + more, newer + newer_there
        ahead = min(ahead, AHEAD_AT_MOST + 1)
        return structs.replace(found, ahead=ahead, newer=min(newer, ahead, AHEAD_AT_MOST))

    # -- change

    async def change(self, changes: Sequence[Change]) -> int:
        by_shard: dict[Shard, list[Change]] = {}
        for change in changes:
            shard = await (
                self._shards.of_id(change.id)
                if change.queue is None or change.id > LAST_ID
                else self._shards.of_job(change.queue, change.id)
            )
            if shard is not None:
                by_shard.setdefault(shard, []).append(change)
        applied = 0
        for shard, part in by_shard.items():
            for start in range(0, len(part), AT_ONCE):
                piece = part[start : start + AT_ONCE]
                applied += await self._changes.call(shard, piece, len(piece))
        return applied

    async def _change_together(self, shard: Shard, calls: list[Sequence[Change]]) -> list[int]:
        changes = [change for call in calls for change in call]
        everywhere = any(change.queue is None for change in changes)
        names = dict.fromkeys(await self._shards.names(shard) if everywhere else ())
        names |= dict.fromkeys(change.queue for change in changes if change.queue is not None)
        numbers = {name: number for number, name in enumerate(names, 1)}
        args: list[Argument] = []
        for change in changes:
            number = 0 if change.queue is None else numbers[change.queue]
            seen = "" if change.waiters is None else change.waiters
            rank = rank_text(change.rank) if isinstance(change, Rerank) else ""
            args += (number, _KINDS[type(change)], f"{change.id:016d}", seen, rank)
        shard, run = await self._outbox.way_of_reports(shard)
        answer: bytes = await self._client.once(_CHANGE, shard, *self._adding(shard, names, run), *args)
        await self._outbox.move_on(shard, [run] if len(answer) > len(changes) else [])
        return [part.count(b"1") for part in shares(answer, [len(call) for call in calls])]

    # -- the others

    async def browse(self, queue: str, state: State, order: Order, after: Cursor | None, limit: int) -> list[JobInfo]:
        found: list[JobInfo] = []
        if after is not None and after.id > LAST_ID:
            after = Cursor(after.sort, LAST_ID)
        shards = self._shards.of_queue(queue)
        for shard in shards:
            found += await self._browse(shard, queue, state, order, after, limit)
        if len(shards) > 1:
            latest_first = order == "line" and state in ENDED
            found.sort(key=lambda job: structs.astuple(job.cursor(order)), reverse=latest_first)
        self._saw(found[:limit])
        return found[:limit]

    async def _browse(
        self, shard: Shard, queue: str, state: State, order: Order, after: Cursor | None, limit: int
    ) -> list[JobInfo]:
        found: list[JobInfo] = []
        keys = [shard.queues, *self._bases(shard, [queue])]
        place: tuple[Argument, Argument] = ("", "") if after is None else (rank_text(after.sort), f"{after.id:016d}")
        while True:
            size = min(limit - len(found), AT_ONCE)
            sort, id, *page = await self._client.run(_BROWSE, shard, keys, state, order, *place, size)
            found += _readable(queue, page)
            place = (sort, id)
            if not id or len(found) >= limit:
                return found

    async def pause(self, queue: str, until: int | None) -> None:
        for shard in self._shards.of_queue(queue):
            if self._shards.single is None:
                await self._shards.registered(shard.tag)
            keys = [shard.queues, *self._bases(shard, [queue])]
            await self._client.run(_PAUSE, shard, keys, queue, "" if until is None else until, writes=True)

    async def purge(self, queue: str, state: State, before: int | None, limit: int | None) -> int:
        """In pieces: each is one step, between them others have their turn. A purge of ready jobs lets held ones in, so
        no more go than there were at the beginning."""
        purged = 0
        for shard in self._shards.of_queue(queue):
            more, left = b"1", None if limit is None else limit - purged
            while more == b"1" and left != 0:
                most = AT_ONCE if left is None else min(AT_ONCE, left)
                what = (state, "" if before is None else before, most)
                shard, run = await self._outbox.way_of_reports(shard)
                answer = await self._client.once(_PURGE, shard, *self._adding(shard, [queue], run), *what)
                count, more, size, reported = answer.split(b",")
                await self._outbox.move_on(shard, [run] if reported else [])
                purged += int(count)
                left = min(int(size), left or int(size)) - int(count)
        return purged

    async def stats(self) -> Stats:
        if self._shards.single is None:
            self._outbox.tick()
        queues: dict[str, QueueStats] = {}
        for each in await asyncio.gather(*(self._count(shard) for shard in await self._shards.all())):
            for name, stats in each.items():
                queues[name] = _sum(queues[name], stats) if name in queues else stats
        return Stats(queues)

    async def _count(self, shard: Shard) -> dict[str, QueueStats]:
        names: list[str] = []
        reply: list[bytes] = []
        while (known := await self._shards.names(shard)) != names:
            names = known
            *reply, count = await self._client.run(_STATS, shard, [shard.queues, *self._bases(shard, names)])
            if int(count) == len(names):
                break  # else a queue has appeared since: what one of these has lost may be in it
        return {name: _counted(text) for name, text in zip(names, reply, strict=True)}

    def _bases(self, shard: Shard, names: Iterable[str]) -> list[str]:
        return [self._keys.bases[name, shard.partition] for name in names]

    def _adding(self, shard: Shard, names: Iterable[str], run: str) -> tuple[list[str], int, int, int, str]:
        """The keys and the first arguments of a script that adds reports (see lua/parts/report.lua)."""
        keys = [shard.ids, shard.queues, shard.outbox, *self._bases(shard, names)]
        return keys, shard.step, shard.number, self._outbox.floor, run

    def _saw(self, found: Sequence[JobInfo]) -> None:
        if self._shards.single is None:
            self._outbox.saw(found)


def _look(at: int, names: Sequence[str], reply: list[Any]) -> Look:
    """What lua/look.lua tells of one job."""
    if not reply:
        return Look(at)
    ahead, newer, waiters, place, *told = reply
    jobs = _readable(names[place], [told])
    if not jobs:
        return Look(at)
    return Look(at, jobs[0], tuple(waiters), None if ahead < 0 else ahead, newer)


def _readable(queue: str, page: Iterable[list[bytes | int]]) -> list[JobInfo]:
    """The jobs of a page. A record that cannot be read is passed over: the next taker buries it."""
    found = []
    for told in page:
        with suppress(ValueError):
            found.append(job_info(queue, told))
    return found


def _counted(text: bytes) -> QueueStats:
    """What lua/stats.lua tells of one queue."""
    *numbers, paused = text.split(b",")
    ready, held, taken, delayed, dead, done, retried, buried, expired, cancelled, promoted, oldest = map(int, numbers)
    total = ready + held + taken + delayed + dead
    until = int(paused) if paused not in (b"-", b"") else None
    counts = (total, ready, taken, delayed, dead, oldest / 1000, done, retried, buried, expired, cancelled, promoted)
    return QueueStats(*counts, paused=paused != b"-", paused_until=until, held=held)


def _sum(one: QueueStats, other: QueueStats) -> QueueStats:
    """Two partitions of a queue as one."""
    both = zip(structs.astuple(one), structs.astuple(other), strict=True)
    total = QueueStats(*(first + second if type(first) is int else first or second for first, second in both))
    return structs.replace(
        total,
        oldest_age=max(one.oldest_age, other.oldest_age),
        paused_until=one.paused_until if one.paused_until is not None else other.paused_until,
    )
