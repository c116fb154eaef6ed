"""The verbs of the hot path, and a job as the text that is stored.

`lua/parts/record.lua` shows a record, `lua/parts/add.lua` the arguments of new jobs, `lua/settle.lua` those of an
outcome. Nothing else in Python knows them. Verbs and texts are in one module so that a call passes through few files.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import groupby
from math import isfinite
from typing import Any, TypeVar, cast

from accoda.errors import InvalidInput, StorageError
from accoda.model import (
    Done,
    Enqueued,
    Job,
    JobInfo,
    Lease,
    NewJob,
    Outcome,
    Refused,
    Retry,
    State,
    What,
    Why,
    clean,
)
from accoda.storage import checks
from accoda.storage.common.call_batching import CallBatching
from accoda.storage.common.closing import Closing
from accoda.storage.common.loop_affinity import LoopAffinity
from accoda.storage.redis.client import Argument, Client
from accoda.storage.redis.cross_slot import Places, Post, Settled, cut, settle_across
from accoda.storage.redis.keys import LAST_ID, Keys, Shard
from accoda.storage.redis.lanes import LaneVerbs
from accoda.storage.redis.outbox import Outbox
from accoda.storage.redis.scripts import script
from accoda.storage.redis.shards import Shards

S = TypeVar("S", bound=Sequence[Any])
_ENQUEUE, _TAKE, _SETTLE, _EXTEND = script("enqueue"), script("take"), script("settle"), script("extend")
_RELEASE, _BURY = script("release"), script("bury")
_MODES = {"keep": "k", "rerank": "p", "replace": "r", "attach": "a"}
_WHATS: dict[str, What] = {"c": "created", "k": "kept", "p": "kept", "r": "replaced", "a": "attached"}
_WHY: dict[str, Why] = {"l": "lost", "g": "grown", "c": "cancelled"}
SMALL = 8  # jobs: a call with more of them costs the server more than a script of its own
MOST_JOBS = 200_000  # in one call: Redis takes a million arguments
FINISH_WITHIN = 2.0  # seconds
_NO_ID = 10**16 - 1  # stands for all that are too long for the scripts; no job has it
_DETAILS = re.compile(rb"(\d{1,16}),(\d{0,16}),(-?\d[\d.]*e?[+-]?\d*),(\d{0,16})(?:,.+)?", re.DOTALL)
_PAST = re.compile(rb"(\d{0,15}),(\d{0,15})" + rb",(\d{0,16})" * 4 + rb",(.*)", re.DOTALL)
_Past = tuple[int, int, int | None, int | None, int | None, int | None, str | None]
"""tries, crashes, prev_start_time, taken_at, ended_at, size of the result, worker."""
_NO_PAST: _Past = (0, 0, None, None, None, None, None)

_TakeKey = tuple[Shard, str, float, str]  # shard, queue, lease, worker


class JobVerbs(Closing):
    """`enqueue`, `take`, `settle` and `extend`, over shards."""

    def __init__(self, keys: Keys, client: Client, shards: Shards) -> None:
        self._keys = keys
        self._client = client
        self._shards = shards
        self._affinity = LoopAffinity()
        self._outbox = Outbox(client, shards, self._enqueue_in)
        self._lanes = LaneVerbs(keys, client, shards)
        # Calls go together where it is as if each had been sent right after the others: jobs are stored one after
        # the other, all or none; takers get the first jobs in their order; the first of two outcomes is applied.
        self._enqueues = CallBatching(self._enqueue_together)
        self._takes = CallBatching(self._take_together, late=self._put_back)
        self._settles = CallBatching(self._settle_together)
        self._releasing: set[asyncio.Task[None]] = set()

    def _is_elsewhere(self) -> bool:
        """Whether the caller is in another event loop than the connections, or there are none any more."""
        return self._affinity.closed or asyncio.get_running_loop() is not self._affinity.loop

    async def _finish(self) -> None:
        """Give what is on its way a moment to arrive."""
        for batching in (self._enqueues, self._takes, self._settles):
            await batching.finish(FINISH_WITHIN)
        if self._releasing:
            await asyncio.wait(self._releasing, timeout=FINISH_WITHIN)

    def _keys_of(self, shard: Shard, queues: Iterable[str]) -> list[str]:
        bases = self._keys.bases
        return [shard.ids, shard.queues, *(bases[queue, shard.partition] for queue in queues)]

    # -- enqueue

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if self._is_elsewhere():
            return await self._affinity.run(self.enqueue(jobs))
        if not (type(jobs) is list and len(jobs) == 1 and type(jobs[0]) is NewJob):  # the usual call needs no check
            checks.check_jobs(jobs)
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
        if len(jobs) > SMALL:
            return await self._enqueue_in(shard, jobs)
        return [*await self._enqueues.call(shard, jobs, len(jobs))]

    async def _enqueue_together(self, shard: Shard, calls: list[Sequence[NewJob]]) -> list[Sequence[Enqueued]]:
        answers = await self._enqueue_in(shard, [job for jobs in calls for job in jobs])
        return list(shares(answers, [len(jobs) for jobs in calls]))

    async def _enqueue_in(self, shard: Shard, jobs: Sequence[NewJob], mark: str | None = None) -> list[Enqueued]:
        """Store jobs of one shard. With `mark`, once for all clients that try: it is the key of their common memory."""
        queues: dict[str, int] = {}
        runs: list[Argument] = []
        _add_runs(jobs, queues, runs)
        keys = self._keys_of(shard, queues)
        args = (shard.step, shard.number, self._outbox.floor, ",".join(queues), *runs)
        if mark is None:
            answer = await self._client.once(_ENQUEUE, shard, keys, *args)
        else:
            answer = await self._client.once_for(mark, _ENQUEUE, shard, keys, *args)
        if len(answer) == 16:  # all were created, one after the other
            first = int(answer)
            answers = [Enqueued(id, "created", 0) for id in range(first, first + len(jobs) * shard.step, shard.step)]
        else:
            said = answer.decode().split(",")
            answers = [Enqueued(int(each[:16]), _WHATS[each[16]], int(each[17:])) for each in said]
        if self._shards.single is None:
            self._outbox.saw(answers)
        return answers

    # -- take

    async def take(
        self, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
    ) -> list[Job]:
        if self._is_elsewhere():
            return await self._affinity.run(self.take(queue, count, lease=lease, max_cost=max_cost, worker=worker))
        checks.check_take(queue, count, lease, max_cost)
        shard = self._shards.single
        if shard is not None:
            return await self._take(shard, queue, count, lease, max_cost, worker)
        self._outbox.tick()
        jobs: list[Job] = []
        for shard in self._shards.in_turn(queue):
            left = None if max_cost is None else max_cost - sum(job.cost for job in jobs)
            try:
                jobs += await self._take(shard, queue, count - len(jobs), lease, left, worker)
            except StorageError:
                if not jobs:
                    raise
                break  # what the other partitions gave must not be forgotten
            if len(jobs) >= count:
                break
        self._outbox.saw(jobs)
        return jobs

    async def _take(
        self, shard: Shard, queue: str, count: int, lease: float, max_cost: int | None, worker: str
    ) -> list[Job]:
        key = (shard, queue, lease, worker)
        if count > SMALL or max_cost is not None:
            return await self._take_in(key, count, max_cost)
        return [*await self._takes.call(key, count, count)]

    async def _take_together(self, key: _TakeKey, counts: list[int]) -> list[Sequence[Job]]:
        return list(shares(await self._take_in(key, sum(counts)), counts))

    async def _take_in(self, key: _TakeKey, count: int, max_cost: int | None = None) -> list[Job]:
        shard, queue, lease, worker = key
        batch = self._client.new_name()
        cost = "" if max_cost is None else max_cost
        keys = self._keys_of(shard, (queue,))
        args = (batch, count, round(lease * 1000), cost, clean(worker))
        try:
            reply = await self._client.run(_TAKE, shard, keys[1:], *args, writes=True)
        except asyncio.CancelledError:
            # What it took is not wanted any more. Sent after it on the same connection, this puts it back.
            self._release(shard, queue, batch)
            raise
        jobs, unreadable = _taken_jobs(queue, reply)
        if unreadable:
            place = (shard.step, shard.number, self._outbox.floor)
            await self._client.once(_BURY, shard, keys, *place, *unreadable)
            await self._lanes.mend(shard, queue)
        return jobs

    def _put_back(self, key: _TakeKey, jobs: Sequence[Job]) -> None:
        """Jobs that were taken for a caller that is gone."""
        if jobs:
            self._release(key[0], key[1], *_tokens(job.lease for job in jobs))

    def _release(self, shard: Shard, queue: str, *taken: Argument) -> None:
        async def release() -> None:
            with suppress(StorageError):  # the end of the lease brings them back
                await self._client.run(_RELEASE, shard, self._keys_of(shard, (queue,))[1:], *taken)

        task = asyncio.get_running_loop().create_task(release())
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    # -- settle

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        if self._is_elsewhere():
            return await self._affinity.run(self.settle(outcomes))
        checks.check_outcomes(outcomes)
        if not outcomes:
            return []
        shard = self._shards.single
        if shard is None:
            sources = [await self._shards.of_job(outcome.lease.queue, outcome.lease.id) for outcome in outcomes]
            pairs = zip(outcomes, sources, strict=True)
            tags = [self._shards.tags_of_jobs(outcome.then, source) for outcome, source in pairs]
            if len({source.tag for source in sources}.union(*tags)) > 1:
                steps, runs = cut(outcomes, sources, tags, self._client.new_name)
                return await settle_across(steps, runs, self._settle_in, self._outbox)
            shard = sources[0]
        if len(outcomes) > SMALL or any(outcome.then for outcome in outcomes):
            places = await self._settle_at(shard, outcomes)
        else:
            places = await self._settles.call(shard, outcomes, len(outcomes))
        return [Refused(outcomes[place].lease, why) for place, why in places]

    async def _settle_together(self, shard: Shard, calls: list[Sequence[Outcome]]) -> list[Places]:
        refused = dict(await self._settle_at(shard, [outcome for outcomes in calls for outcome in outcomes]))
        places = shares(range(sum(map(len, calls))), [len(outcomes) for outcomes in calls])
        return [[(place - own[0], refused[place]) for place in own if place in refused] for own in places]

    async def _settle_at(self, shard: Shard, outcomes: Sequence[Outcome]) -> Places:
        """Outcomes of one shard, with follow-ups that belong to it too."""
        refused, reported = await self._settle_in(shard, outcomes)
        if reported:
            await self._outbox.move_on(shard, reported)
        return refused

    async def _settle_in(self, shard: Shard, outcomes: Sequence[Outcome], posts: Sequence[Post] = ()) -> Settled:
        """Outcomes of one shard, with follow-ups that belong to it too; those in `posts` go to its outbox."""
        queues: dict[str, int] = {}
        names: dict[str, int] = {}
        args: list[Argument] = []
        following: list[Argument] = []
        for (queue, kind, attempts), run in groupby(outcomes, _kind_of):
            number = queues.setdefault(queue, len(queues) + 1)
            these = list(run)
            args += (f"{number}{kind}{attempts}", _leases_text(these))
            if kind != "d":
                for outcome in these:
                    args += _outcome_arguments(outcome, _add_runs(outcome.then, names, following))
        for post in posts:
            args += (post.place + 1, post.run.name, int(post.takes_reports), post.sealed())
        reports = ""
        if self._shards.single is None:
            shard, reports = await self._outbox.way_of_reports(shard)
            if reports:  # in the order of their outcomes, so with what leaves for the same place if there is something
                reports = next((post.run.name for post in reversed(posts) if post.takes_reports), reports)
            if names:  # new ids have the shard's number, which was not needed so far
                shard = await self._shards.registered(shard.tag)
        head = (shard.step, shard.number, self._outbox.floor, reports, ",".join(names), len(outcomes), len(posts))
        ids, known, *bases = self._keys_of(shard, (*queues, *names))
        answer = await self._client.once(_SETTLE, shard, (ids, known, shard.outbox, *bases), *head, *args, *following)
        return _settled(answer) if answer else ([], [])

    # -- extend

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        if self._is_elsewhere():
            return await self._affinity.run(self.extend(leases, lease))
        checks.check_leases(leases, lease)
        groups: dict[tuple[Shard, str], list[int]] = {}
        for place, held in enumerate(leases):
            groups.setdefault((await self._shards.of_job(held.queue, held.id), held.queue), []).append(place)
        refused: dict[int, Why] = {}
        for (shard, queue), places in groups.items():
            args = _tokens(leases[place] for place in places)
            head = (round(lease * 1000), self._client.new_name())
            keys = self._keys_of(shard, (queue,))[1:]
            answer = await self._client.run(_EXTEND, shard, keys, *head, *args, writes=True)
            refused |= {places[at]: why for at, why in _refused_places(answer)}
        return [Refused(leases[place], refused[place]) for place in sorted(refused)]


# -- texts


def rank_text(rank: float) -> str:
    """Exact, and short where it can be: it is stored with every job."""
    whole = int(rank)
    return str(whole) if whole == rank and -1_000_000_000 < whole < 1_000_000_000 else repr(float(rank))


def _in_common(job: NewJob) -> tuple[object, ...]:
    """What the jobs of a run share: all but data, lane, key and waiter."""
    mode = "-" if job.key is None else _MODES[job.on_duplicate]
    if job.lane is not None:
        mode += "l"
    return job.queue, mode, job.delay, job.start_at, job.rank, job.cost, job.keep_for, job.reports_to


def _add_runs(jobs: Sequence[NewJob], queues: dict[str, int], args: list[Argument]) -> int:
    """Add the arguments of new jobs (see lua/parts/add.lua) and number their queues; how many runs they are."""
    number = 0
    for (_, mode, *_), run in groupby(jobs, _in_common):
        number += 1
        place = len(args)
        args.append("")
        count = 0
        for job in run:
            count += 1
            if job.key is not None:
                args += (job.key, b"" if job.waiter is None else b"=" + job.waiter)
            if job.lane is not None:
                args.append(job.lane)
            args.append(job.data)
        start = ""
        if job.delay is not None:
            start = f"+{round(job.delay * 1000)}"
        elif job.start_at is not None:
            start = f"@{job.start_at}"
        keep = repr(float(job.keep_for)) if job.keep_for else ""
        queue_number = queues.setdefault(job.queue, len(queues) + 1)
        common = f"{mode},{start},{rank_text(job.rank)},{job.cost or ''},{keep},{job.reports_to or ''}"
        args[place] = f"{count},{queue_number},{common}"
    return number


def _kind_of(outcome: Outcome) -> tuple[str, str, int]:
    """What the outcomes of a run share (see lua/settle.lua): the queue, the kind and the attempts."""
    lease = outcome.lease
    if type(outcome) is Done:
        is_bare = outcome.result is None and outcome.waiters is None and not outcome.then
        return lease.queue, "d" if is_bare else "f", lease.attempts
    return lease.queue, "r" if type(outcome) is Retry else "b", lease.attempts


def _leases_text(outcomes: Sequence[Outcome]) -> str:
    """The leases of a run of outcomes, as lua/settle.lua takes them."""
    parts = []
    taken_at = -1
    for outcome in outcomes:
        lease = outcome.lease
        if lease.taken_at != taken_at:
            taken_at = lease.taken_at
            parts.append(f",{taken_at}:")
        parts.append(f"{lease.id if lease.id <= LAST_ID else _NO_ID:016d}")
    return "".join(parts)


def _tokens(leases: Iterable[Lease]) -> list[Argument]:
    return [text for lease in leases for text in (f"{lease.id:016d}", lease.attempts, lease.taken_at)]


def _outcome_arguments(outcome: Outcome, runs: int) -> tuple[Argument, ...]:
    """The arguments of an outcome with so many runs of follow-ups."""
    if isinstance(outcome, Done):
        result = b"" if outcome.result is None else b"=" + outcome.result
        return "" if outcome.waiters is None else outcome.waiters, result, runs
    if isinstance(outcome, Retry):
        start = f"+{round(outcome.delay * 1000)}" if outcome.at is None else f"@{outcome.at}"
        rank = "" if outcome.rank is None else rank_text(outcome.rank)
        return start, clean(outcome.reason), rank, int(outcome.counts), runs
    return clean(outcome.reason), runs


def _settled(answer: bytes) -> Settled:
    """What lua/settle.lua answers."""
    refused, _, runs = answer.partition(b";")
    return _refused_places(refused), runs.decode().split(",") if runs else []


def _refused_places(answer: bytes) -> Places:
    """What lua/extend.lua answers, and lua/settle.lua in front of the runs."""
    refused = (each.partition(":") for each in answer.decode().split(",") if each)
    return [(int(place), _WHY[why]) for place, _, why in refused]


@lru_cache(1000)
def _details(text: bytes) -> tuple[int, int, float, int]:
    """The second text of a record: created_at, start_time, rank, cost. The scripts alone need its `reports_to`.

    Jobs that were stored together have the same one, so it is mostly known already.
    """
    found = _DETAILS.fullmatch(text)
    if found is None:
        raise ValueError("not the details of a job")
    created, start, rank, cost = found.groups()
    return int(created), int(start or created), _number(rank), int(cost or 0)


def _past(text: bytes) -> _Past:
    """The third text of the record of a job that has run."""
    found = _PAST.fullmatch(text)
    if found is None:
        raise ValueError("not the past of a job")
    tries, crashes, *moments, worker = found.groups()
    prev, taken_at, ended_at, size = (int(moment) if moment else None for moment in moments)
    return int(tries or 0), int(crashes or 0), prev, taken_at, ended_at, size, worker.decode()


def _number(text: bytes) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError("not a finite number")
    return number


@lru_cache(1000)
def _head(text: bytes) -> tuple[int, float, str | None, str | None]:
    """What follows the id in the first text of a record: attempts, keep_for, lane, key."""
    attempts, keep_for, names = text.split(b",", 2)
    lane, tab, key = names.partition(b"\t")
    if not attempts.isdigit() or len(attempts) > 15 or not tab:
        raise ValueError("not the head of a record")
    keep = _number(keep_for) if keep_for else 0.0
    return int(attempts), keep, lane.decode() if lane else None, key.decode() if key else None


def _taken_jobs(queue: str, reply: list[bytes]) -> tuple[list[Job], list[bytes]]:
    """What `take` answered: jobs, and the records that cannot be read."""
    *records, numbers, moment = reply
    taken_at = int(moment) if records else 0
    waiters: dict[int, int] = {}
    for each in numbers.split(b",") if numbers else ():
        at, _, count = each.partition(b":")
        waiters[int(at)] = int(count)
    jobs: list[Job] = []
    unreadable: list[bytes] = []
    for place, record in enumerate(records):
        try:
            head, details, past, _, data = record.split(b"\0", 4)
            number, _, rest = head.partition(b",")
            if len(number) != 16 or not number.isdigit():
                raise ValueError("not an id")
            id = int(number)
            attempts, _, lane, key = _head(rest)
            created_at, start, rank, cost = _details(details)
            tries, crashes, prev = _past(past)[:3] if past else (0, 0, None)
        except ValueError:
            unreadable.append(record)
            continue
        joined = waiters.get(place, 0) if waiters else 0
        lease = Lease(queue, id, attempts, taken_at)
        jobs.append(
            Job(
                *(id, queue, data, rank, cost, key, attempts, created_at, start, prev, joined, lease),
                *(tries, crashes, lane),
            )
        )
    return jobs, unreadable


def job_info(queue: str, told: list[bytes | int]) -> JobInfo:
    """What `describe` in lua/parts/job.lua tells. Raises ValueError where the record cannot be read."""
    state, till, taken_at, worker, waiters, turn, record = cast(list[bytes], told)
    head, details, past, reason, body = record.split(b"\0", 4)
    id, _, rest = head.partition(b",")
    attempts, keep_for, lane, key = _head(rest)
    created_at, start, rank, cost = _details(details)
    tries, crashes, prev, last_taken_at, ended_at, size, last_worker = _past(past) if past else _NO_PAST
    is_taken = state == b"taken"
    return JobInfo(
        id=int(id),
        queue=queue,
        state=cast(State, state.decode()),
        data=body[size or 0 :],
        rank=rank,
        cost=cost,
        key=key,
        attempts=attempts,
        created_at=created_at,
        start_time=start,
        prev_start_time=prev,
        waiters=int(waiters),
        keep_for=keep_for,
        worker=worker.decode() if is_taken else last_worker if last_taken_at is not None else None,
        taken_at=int(taken_at) if taken_at else last_taken_at,
        lease_until=int(till) if till else None,
        ended_at=ended_at,
        reason=reason[1:].decode() if reason else None,
        result=None if size is None else body[:size],
        tries=tries,
        crashes=crashes,
        lane=lane,
        turn=_number(turn) if turn and float(turn) != rank else None,
    )


def shares(items: S, sizes: Sequence[int]) -> Iterator[S]:
    """The items in slices of these sizes; the last ones may be short."""
    start = 0
    for size in sizes:
        yield cast(S, items[start : start + size])
        start += size
