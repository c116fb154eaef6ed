"""Which shard holds a queue or an id: one on a single server; in a Cluster, one for each family and partition."""

from __future__ import annotations

import asyncio
import re
from binascii import crc_hqx
from collections.abc import Sequence

from accoda.errors import StorageError
from accoda.model import NewJob
from accoda.storage.redis.client import Client
from accoda.storage.redis.keys import CLUSTER_STEP, LAST_ID, Keys, Shard, family, shard_at, slot_of
from accoda.storage.redis.scripts import script

_REGISTER = script("register")
_NAME = re.compile(rb"[A-Za-z0-9_.-]{1,128}")
_TAG = re.compile(rb"[A-Za-z0-9_-]{1,128}(/\d+)?")
_NUMBER = re.compile(rb"\d{1,3}")
REGISTER_EVERY = 60.0  # seconds


class Shards:
    """`partitions` is into how many shards a family of queues is split (Cluster only)."""

    def __init__(self, keys: Keys, client: Client, partitions: int = 1) -> None:
        self._keys = keys
        self._client = client
        self._partitions = partitions
        self._known: dict[str, Shard] = {}  # registered shards by tag
        self._known_until = 0.0
        self._turn = 0
        self._registry = shard_at(keys.shards, slot_of(keys.shards))
        self.single = None if client.topology.cluster else keys.single

    def of_queue(self, queue: str) -> list[Shard]:
        """Where jobs of a queue may be. Their numbers are not needed to look there."""
        if self.single is not None:
            return [self.single]
        head = family(queue)
        if self._partitions == 1:
            return [self._keys.cluster_shard(head)]
        return [self._keys.cluster_shard(f"{head}/{n}") for n in range(self._partitions)]

    def in_turn(self, queue: str) -> list[Shard]:
        """The same, each time beginning with the next one: so a taker visits all partitions fairly."""
        shards = self.next_in_turn(queue)
        self._turn += 1
        return shards

    def next_in_turn(self, queue: str) -> list[Shard]:
        """What `in_turn` will give next."""
        shards = self.of_queue(queue)
        if len(shards) == 1:
            return shards
        first = self._turn % len(shards)
        return shards[first:] + shards[:first]

    def of_key(self, queue: str, key: str) -> list[Shard]:
        """Where the job that holds this key is, if there is one."""
        shards = self.of_queue(queue)
        return shards if len(shards) == 1 else [shards[_number_of_name(key) % len(shards)]]

    def tags_of_jobs(self, jobs: Sequence[NewJob], source: Shard | None = None) -> list[str]:
        """The tag of the shard that each new job goes to.

        A key always leads to the same partition, else there could be two jobs with it. So does a lane, for jobs without
        a key, so that its rules hold for all of them; where its jobs have keys, they hold in each partition. The other
        jobs go to the same partition within a call, and to the next one with the next call; follow-ups to that of the
        job that they follow (`source`), so that its end and they are one step.
        """
        if self._partitions == 1:
            return [family(job.queue) for job in jobs]
        if source is not None and source.partition:
            turn = int(source.partition[1:])
        else:
            turn, self._turn = self._turn, self._turn + 1
        numbers = (turn if (name := job.key or job.lane) is None else _number_of_name(name) for job in jobs)
        return [f"{family(job.queue)}/{number % self._partitions}" for job, number in zip(jobs, numbers, strict=True)]

    async def of_job(self, queue: str, id: int) -> Shard:
        """Where a job of this queue is, if there is one."""
        if self.single is not None:
            return self.single
        if self._partitions > 1:
            shard = await self.of_id(id)
            if shard is not None and any(shard.root == own.root for own in self.of_queue(queue)):
                return shard  # else the id belongs to another queue, and is not found in this one
        return self.of_queue(queue)[0]

    async def of_id(self, id: int) -> Shard | None:
        """The shard that gave out this id; None where there is no such shard."""
        if id > LAST_ID:
            return None
        if self.single is not None:
            return self.single
        number = id % CLUSTER_STEP
        for _ in range(2):
            for shard in self._known.values():
                if shard.number == number:
                    return shard
            await self.all()
        return None

    async def all(self) -> list[Shard]:
        """Every shard that ever had a job."""
        if self.single is not None:
            return [self.single]
        reply = await self._client.command(self._registry.slot, "HGETALL", self._keys.shards)
        pairs = zip(reply[::2], reply[1::2], strict=True)
        tags = {tag.decode(): int(number) for tag, number in pairs if _NUMBER.fullmatch(number) and _TAG.fullmatch(tag)}
        self._known = {tag: self._keys.cluster_shard(tag, number) for tag, number in tags.items()}
        return list(self._known.values())

    async def registered(self, tag: str) -> Shard:
        """The shard of a tag with its number, which it is given on first use.

        Asked for again each minute: a registry that came back older has forgotten it, and without it no other client
        would count the shard's queues or find its jobs by id.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._known_until:
            self._known, self._known_until = {}, now + REGISTER_EVERY
        shard = self._known.get(tag)
        if shard is None:
            # The wish follows from the tag: should a fail-over forget the number, the tag most likely gets it again.
            args = (tag, slot_of(tag) % (CLUSTER_STEP - 1) + 1, CLUSTER_STEP - 1)
            number = await self._client.run(_REGISTER, self._registry, [self._keys.shards], *args, writes=True)
            if not number:
                raise StorageError(
                    f"this Cluster store has {CLUSTER_STEP - 1} families of queues (with partitions) and takes no "
                    "more; use fewer queues or partitions, or a second prefix"
                )
            shard = self._known[tag] = self._keys.cluster_shard(tag, number)
        return shard

    async def names(self, shard: Shard) -> list[str]:
        """The queues of a shard."""
        reply = await self._client.command(shard.slot, "SMEMBERS", shard.queues)
        return sorted(name.decode() for name in reply if _NAME.fullmatch(name))  # another name is none of ours


def _number_of_name(name: str) -> int:
    return crc_hqx(name.encode(), 0)
