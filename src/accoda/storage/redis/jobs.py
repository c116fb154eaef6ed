"""The verbs of `Storage` for jobs, over shards."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar, cast

from accoda.errors import InvalidInput, StorageError
from accoda.model import (
    Bury,
    Done,
    Enqueued,
    Job,
    Lease,
    NewJob,
    Outcome,
    QueueStats,
    Rank,
    Refused,
    Stats,
    Why,
    clean,
    follow_ups,
)
from accoda.storage.redis.apart import Post, cut
from accoda.storage.redis.caller import Caller
from accoda.storage.redis.connection import Argument
from accoda.storage.redis.encode import (
    alike,
    all_plain,
    counted,
    enqueued,
    id_text,
    jobs_arguments,
    outcome_arguments,
    rank_text,
    taken_jobs,
    unseal,
)
from accoda.storage.redis.keys import Keys, Shard
from accoda.storage.redis.outbox import Outbox
from accoda.storage.redis.scripts import script
from accoda.storage.redis.shards import Shards
from accoda.storage.redis.together import SMALL, Kind, Shared
from accoda.storage.redis.types import WrongType
from accoda.storage.redis.whole import Wholes

_ENQUEUE, _TAKE, _SETTLE, _EXTEND = script("enqueue"), script("take"), script("settle"), script("extend")
_RERANK, _WAITERS, _RELEASE, _STATS = script("rerank"), script("waiters"), script("release"), script("stats")
_ASIDE, _LINE_UP = script("aside"), script("line_up")
_WHY: dict[str, Why] = {"l": "lost", "g": "grown"}
Places = list[tuple[int, Why]]  # refused outcomes of a call, by their places in it
_TakeKey = tuple[Shard, str, float, str]
T = TypeVar("T")
_clean = lru_cache(1000)(clean)
FINISH_WITHIN = 2.0  # seconds
MOST_JOBS = 200_000  # in one call: Redis takes a million arguments, and a job has up to five


class Jobs:
    def __init__(self, keys: Keys, caller: Caller, shards: Shards, outbox: Outbox, together: Shared) -> None:
        self._keys = keys
        self._caller = caller
        self._shards = shards
        self._outbox = outbox
        self._together = together
        self._enqueues: Kind[Sequence[NewJob], list[Enqueued]] = Kind(self._enqueue_joined)
        self._settles: Kind[Sequence[Outcome], Places] = Kind(self._settle_joined)
        self._takes: Kind[int, list[Job]] = Kind(self._take_joined)
        self.wholes = Wholes(keys, caller, together, self.settle)
        self._releasing: set[asyncio.Task[None]] = set()

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not jobs:
            return []
        if len(jobs) > MOST_JOBS:
            raise InvalidInput("jobs", f"at most {MOST_JOBS:,} in one call; split the list")
        shard = self._shards.single
        if shard is None:
            tags = self._shards.tags_of_jobs(jobs)
            if len(set(tags)) > 1:
                return await self._outbox.enqueue(jobs, tags)
            shard = await self._shards.registered(tags[0])
        place = shard
        together = self._together.to(place)
        return await together.call(self._enqueues, place, jobs, len(jobs), lambda: self._enqueue_in(place, jobs))

    async def _enqueue_joined(
        self, key: Hashable, calls: list[Sequence[NewJob]], _: list[asyncio.Future[list[Enqueued]]]
    ) -> list[list[Enqueued]]:
        # The script stores the jobs of the calls one after the other. All or nothing holds for all of them together,
        # and so for each.
        shard = cast(Shard, key)
        try:
            answers = await self._enqueue_in(shard, [job for jobs in calls for job in jobs])
        except WrongType:
            # Nothing was stored. One of the queues is damaged: the calls for the others need not fail with it.
            alone = await asyncio.gather(*(self._enqueue_in(shard, jobs) for jobs in calls), return_exceptions=True)
            return cast(list[list[Enqueued]], alone)
        return list(_shares(answers, [len(jobs) for jobs in calls]))

    async def _enqueue_in(self, shard: Shard, jobs: Sequence[NewJob]) -> list[Enqueued]:
        place = (shard.step, shard.number, self._outbox.floor)
        plain = alike(jobs)
        if plain is not None:
            keys = self._keys.line(shard, plain.queue)
            told = (plain.queue, plain.cost, plain.rank)
            answer = await self._caller.once(_LINE_UP, shard, keys, *place, *told, *plain.args)
        else:
            names: list[str] = []
            args: list[Argument] = []
            jobs_arguments(jobs, names, args)
            bases = [self._keys.base(name, shard.partition) for name in names]
            head = (*place, len(jobs), ",".join(names))
            answer = await self._caller.once(_ENQUEUE, shard, (shard.ids, shard.queues, *bases), *head, *args)
        answers = enqueued(answer, len(jobs), shard.step)
        if self._shards.single is None:
            self._outbox.saw(answers)
        return answers

    def take(
        self, queue: str, count: int, lease: float, max_cost: int | None, worker: str
    ) -> Coroutine[Any, Any, list[Job]]:
        if self._shards.single is not None:
            return self._take_in(self._shards.single, queue, count, lease, max_cost, worker)
        return self._take_of_all(queue, count, lease, max_cost, worker)

    async def _take_of_all(self, queue: str, count: int, lease: float, max_cost: int | None, worker: str) -> list[Job]:
        self._outbox.tick()
        jobs: list[Job] = []
        for shard in self._shards.in_turn(queue):
            left = None if max_cost is None else max_cost - sum(job.cost for job in jobs)
            try:
                jobs += await self._take_in(shard, queue, count - len(jobs), lease, left, worker)
            except StorageError:
                if not jobs:
                    raise
                break  # what the other partitions gave must not be forgotten
            if len(jobs) >= count:
                break
        self._outbox.saw(jobs)
        return jobs

    async def _take_in(
        self, shard: Shard, queue: str, count: int, lease: float, max_cost: int | None, worker: str
    ) -> list[Job]:
        key = (shard, queue, lease, worker)
        if max_cost is not None or count > SMALL:
            return await self._take(key, count, max_cost)
        call = self._together.to(shard).call(self._takes, key, count, count, lambda: self._take(key, count, None))
        try:
            return await call
        except asyncio.CancelledError:
            if isinstance(call, asyncio.Future) and not call.cancelled():  # cancelled with the jobs in its hands
                self._put_back(shard, queue, "", [id_text(job.id) for job in call.result()])
            raise

    async def _take(self, key: _TakeKey, count: int, max_cost: int | None, batch: str = "") -> list[Job]:
        shard, queue, lease, worker = key
        batch = batch or self._caller.new_name()
        cost = "" if max_cost is None else max_cost
        args = (batch, count, round(lease * 1000), cost, _clean(worker))
        keys = self._keys.line(shard, queue)[1:]
        try:
            reply = await self._caller.run(_TAKE, shard, keys, *args, writes=True)
            jobs, unreadable = taken_jobs(queue, reply)
            if unreadable:  # what the script could not see without a look at every digit
                await self._caller.run(_ASIDE, shard, keys, *unreadable, writes=True)
            elif all_plain(reply):  # where several takers share the batch, none of them ends it as a whole
                self.wholes.took(shard, queue, batch, jobs)
            return jobs
        except asyncio.CancelledError:
            # Nobody will see what it took. Sent after it on the same connection, this puts it back.
            self._put_back(shard, queue, batch, ())
            raise

    async def _take_joined(
        self, key: Hashable, counts: list[int], callers: list[asyncio.Future[list[Job]]]
    ) -> list[list[Job]]:
        shard, queue, *_ = take_key = cast(_TakeKey, key)
        batch = self._caller.new_name()
        jobs = await self._take(take_key, sum(counts), None, batch)
        # Those who have gone get nothing, and what would be theirs goes to the others or back.
        wanted = [0 if caller.cancelled() else count for caller, count in zip(callers, counts, strict=True)]
        if len(jobs) > sum(wanted):
            self._put_back(shard, queue, batch, [id_text(job.id) for job in jobs[sum(wanted) :]])
        return list(_shares(jobs, wanted))

    def _put_back(self, shard: Shard, queue: str, batch: str, ids: Sequence[str]) -> None:
        task = asyncio.get_running_loop().create_task(self._release(shard, queue, batch, ids))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def _release(self, shard: Shard, queue: str, batch: str, ids: Sequence[str]) -> None:
        base = self._keys.base(queue, shard.partition)
        with suppress(StorageError):  # the end of the lease brings them back
            await self._caller.run(_RELEASE, shard, [shard.queues, base], batch, *ids)

    async def finish(self) -> None:
        """Give what is on its way a moment to arrive."""
        tasks = [*self._releasing, *self._together.tasks]
        if tasks:
            await asyncio.wait(tasks, timeout=FINISH_WITHIN)

    # -- settle

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        if not outcomes:
            return []
        shard = self._shards.single
        if shard is None:
            sources = [await self._shards.of_lease(outcome.lease) for outcome in outcomes]
            tags = {
                tag
                for outcome, source in zip(outcomes, sources, strict=True)
                if (then := follow_ups(outcome))
                for tag in self._shards.tags_of_jobs(then, source)
            }
            shard = sources[0]
            if tags:
                shard = await self._shards.registered(tags.pop())
            if tags or any(source.root != shard.root for source in sources):
                return await self._settle_apart(outcomes, sources)
        if any((type(outcome) is Done or type(outcome) is Bury) and outcome.then for outcome in outcomes):
            places = await self._settle_in(shard, outcomes)
        else:
            place = shard
            alone = lambda: self._settle_in(place, outcomes)  # noqa: E731
            places = await self._together.to(place).call(self._settles, place, outcomes, len(outcomes), alone)
        return [Refused(outcomes[place].lease, why) for place, why in places]

    async def _settle_joined(
        self, key: Hashable, calls: list[Sequence[Outcome]], _: list[asyncio.Future[Places]]
    ) -> list[Places]:
        # Outcomes without follow-ups touch their own jobs only; of two for the same lease the first is applied.
        refused = await self._settle_in(cast(Shard, key), [outcome for outcomes in calls for outcome in outcomes])
        answers: list[Places] = []
        start = 0
        for outcomes in calls:
            end = start + len(outcomes)
            answers.append([(place - start, why) for place, why in refused if start <= place < end])
            start = end
        return answers

    async def _settle_in(self, shard: Shard, outcomes: Sequence[Outcome], posts: Sequence[Post] = ()) -> Places:
        """Outcomes of one shard, with follow-ups that belong to it too; those in `posts` go to its outbox."""
        queues: dict[str, int] = {}
        names: list[str] = []
        args: list[Argument] = []
        following: list[NewJob] = []
        for outcome in outcomes:
            number = queues.setdefault(outcome.lease.queue, len(queues) + 1)
            outcome_arguments(outcome, number, args)
            if (type(outcome) is Done or type(outcome) is Bury) and outcome.then:
                following += outcome.then
        for post in posts:
            args += (post.place + 1, post.run.name, post.sealed())
        if following:
            jobs_arguments(following, names, args)
        bases = [self._keys.base(name, shard.partition) for name in (*queues, *names)]
        head = (shard.step, shard.number, self._outbox.floor, ",".join(names), len(outcomes), len(posts))
        keys = [shard.ids, shard.queues, shard.outbox, *bases]
        answer = await self._caller.once(_SETTLE, shard, keys, *head, *args)
        if not answer:
            return []
        return [
            (int(place), _WHY[why]) for place, _, why in (each.partition(":") for each in answer.decode().split(","))
        ]

    async def _settle_apart(self, outcomes: Sequence[Outcome], sources: Sequence[Shard]) -> list[Refused]:
        """Leases or follow-ups of several shards: one step for each shard with leases, see apart.py."""
        pairs = zip(outcomes, sources, strict=True)
        tags = [self._shards.tags_of_jobs(follow_ups(outcome), source) for outcome, source in pairs]
        steps, runs = cut(outcomes, sources, tags, self._caller.new_name)
        refused: dict[int, Refused] = {}
        for step in steps:
            # New ids have the shard's number, which is not known of a shard that was only looked for.
            shard = await self._shards.registered(step.shard.tag) if step.stores else step.shard
            not_applied = dict(await self._settle_in(shard, step.outcomes, step.posts))
            for at, why in not_applied.items():
                place = step.places[at]
                refused[place] = Refused(outcomes[place].lease, why)
            for post in step.posts:
                if post.place not in not_applied:
                    post.run.jobs += post.jobs
        # After all steps: a node that is away must not keep the other outcomes waiting until their leases end.
        for run, source in runs:
            if not run.jobs:
                continue
            try:
                await self._outbox.deliver(run.name, unseal(run.sealed()))
                await self._outbox.clear(source, [run.name])
            except StorageError:
                continue  # it is in the outbox, and will be moved on
        return [refused[place] for place in sorted(refused)]

    # -- the others

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        refused: list[int] = []
        for shard, queue, places in await self._by_queue(leases):
            args = [text for place in places for text in (id_text(leases[place].id), leases[place].attempts)]
            base, name = self._keys.base(queue, shard.partition), self._caller.new_name()
            answer = await self._caller.run(
                _EXTEND, shard, [shard.queues, base], round(lease * 1000), name, *args, writes=True
            )
            refused += [places[int(at)] for at in answer.decode().split(",") if at]
        return [Refused(leases[place], "lost") for place in sorted(refused)]

    async def rerank(self, ranks: Sequence[Rank]) -> int:
        applied = 0
        held = [Lease(rank.queue, rank.id, 0) for rank in ranks]
        for shard, queue, places in await self._by_queue(held):
            args: list[Argument] = []
            for rank in (ranks[place] for place in places):
                args += (id_text(rank.id), rank_text(rank.rank), "" if rank.waiters is None else rank.waiters)
            base = self._keys.base(queue, shard.partition)
            applied += await self._caller.run(_RERANK, shard, [shard.queues, base], *args, writes=True)
        return applied

    async def _by_queue(self, leases: Sequence[Lease]) -> list[tuple[Shard, str, list[int]]]:
        groups: dict[tuple[str, str], tuple[Shard, str, list[int]]] = {}
        for place, lease in enumerate(leases):
            shard = await self._shards.of_lease(lease)
            groups.setdefault((shard.root, lease.queue), (shard, lease.queue, []))[2].append(place)
        return list(groups.values())

    async def waiters(self, lease: Lease) -> list[bytes]:
        shard = await self._shards.of_lease(lease)
        base = self._keys.base(lease.queue, shard.partition)
        found: list[bytes] = await self._caller.run(
            _WAITERS, shard, [shard.queues, base], id_text(lease.id), lease.attempts
        )
        return found

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
        bases: list[str] = []
        reply: list[bytes] = []
        while (known := await self._shards.names(shard)) != names:
            names = known
            bases = [self._keys.base(name, shard.partition) for name in names]
            *reply, count = await self._caller.run(_STATS, shard, [shard.queues, *bases])
            if int(count) == len(names):
                break  # else a queue has appeared since: what one of these has lost may be in it
        broken = [base for base, text in zip(bases, reply, strict=True) if text == b"!"]
        await self._caller.warn_of_wrong_types(shard, broken)
        return {name: QueueStats() if text == b"!" else counted(text) for name, text in zip(names, reply, strict=True)}


def _shares(items: Sequence[T], sizes: Sequence[int]) -> Iterator[list[T]]:
    """The items in slices of these sizes; the last ones may be short."""
    start = 0
    for size in sizes:
        yield list(items[start : start + size])
        start += size


def _sum(one: QueueStats, other: QueueStats) -> QueueStats:
    """Two partitions of a queue as one."""
    return QueueStats(
        total=one.total + other.total,
        ready=one.ready + other.ready,
        taken=one.taken + other.taken,
        delayed=one.delayed + other.delayed,
        dead=one.dead + other.dead,
        oldest_age=max(one.oldest_age, other.oldest_age),
        done=one.done + other.done,
        retried=one.retried + other.retried,
        buried=one.buried + other.buried,
        expired=one.expired + other.expired,
        paused=one.paused or other.paused,
        paused_until=one.paused_until if one.paused_until is not None else other.paused_until,
    )
