"""Opening, closing, and input that cannot be used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from accoda.errors import InvalidInput, StorageClosed
from accoda.model import Bury, Done, Lease, NewJob, Rank, Retry
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import Q, Suite, add_one, info_of, need_shared, stats_of, take_ids, take_one
from accoda.testing.world import World

Call = Callable[[Any], Awaitable[object]]
WRONG: Any = 1  # for what a type checker would not let pass
LEASE = Lease(Q, 1, 0)

VERBS: dict[str, Call] = {
    "enqueue": lambda s: s.enqueue([NewJob(Q)]),
    "take": lambda s: s.take(Q, 1),
    "settle": lambda s: s.settle([Done(LEASE)]),
    "extend": lambda s: s.extend([LEASE], 1),
    "rerank": lambda s: s.rerank([Rank(Q, 1, 1)]),
    "waiters": lambda s: s.waiters(LEASE),
    "peek": lambda s: s.peek(Q),
    "drop": lambda s: s.drop(Q, 1, 0),
    "wait": lambda s: s.wait([Q], 0),
    "stats": lambda s: s.stats(),
    "read": lambda s: s.read("doc"),
    "write": lambda s: s.write("doc", b""),
    "documents": lambda s: s.documents(""),
    "find": lambda s: s.find(1),
    "place": lambda s: s.place(1),
    "browse": lambda s: s.browse(Q, "ready"),
    "remove": lambda s: s.remove([1]),
    "revive": lambda s: s.revive([1]),
    "start_now": lambda s: s.start_now([1]),
    "pause": lambda s: s.pause(Q),
    "resume": lambda s: s.resume(Q),
    "purge": lambda s: s.purge(Q, "ready"),
}

BAD: dict[str, Call] = {
    "enqueue what is no list": lambda s: s.enqueue(NewJob(Q)),
    "enqueue what is no job": lambda s: s.enqueue([Q]),
    "take from no queue": lambda s: s.take("", 1),
    "take from a bad name": lambda s: s.take("a b", 1),
    "take from a number": lambda s: s.take(1, 1),
    "take less than nothing": lambda s: s.take(Q, -1),
    "take half a job": lambda s: s.take(Q, 1.5),
    "take for no time": lambda s: s.take(Q, 1, lease=0),
    "take for less than no time": lambda s: s.take(Q, 1, lease=-1),
    "take for ever": lambda s: s.take(Q, 1, lease=float("inf")),
    "take for nan": lambda s: s.take(Q, 1, lease=float("nan")),
    "take for text": lambda s: s.take(Q, 1, lease="60"),
    "take with a cost below zero": lambda s: s.take(Q, 1, max_cost=-1),
    "take with half a cost": lambda s: s.take(Q, 1, max_cost=0.5),
    "settle what is no list": lambda s: s.settle(Done(LEASE)),
    "settle a lease": lambda s: s.settle([LEASE]),
    "settle a number": lambda s: s.settle([Done(WRONG)]),
    "settle with follow-ups that are none": lambda s: s.settle([Done(LEASE, then=[WRONG])]),
    "settle with a result that is text": lambda s: s.settle([Done(LEASE, result=WRONG)]),
    "retry with a reason that is no text": lambda s: s.settle([Retry(LEASE, reason=WRONG)]),
    "bury without a reason": lambda s: s.settle([Bury(LEASE, WRONG)]),
    "bury with follow-ups that are none": lambda s: s.settle([Bury(LEASE, "x", [WRONG])]),
    "extend for no time": lambda s: s.extend([LEASE], 0),
    "extend what is no lease": lambda s: s.extend([1], 60),
    "rerank what is no rank": lambda s: s.rerank([(Q, 1, 1)]),
    "waiters of what is no lease": lambda s: s.waiters(1),
    "peek at a bad name": lambda s: s.peek("a b"),
    "peek at no key": lambda s: s.peek(Q, ""),
    "peek at a key that is no text": lambda s: s.peek(Q, 1),
    "peek at a key that no job can have": lambda s: s.peek(Q, "nul\0"),
    "peek after less than nobody": lambda s: s.peek(Q, "k", after=-1),
    "peek after half of them": lambda s: s.peek(Q, "k", after=0.5),
    "drop from a bad name": lambda s: s.drop("a b", 1, 1),
    "drop an id below zero": lambda s: s.drop(Q, -1, 1),
    "drop an id beyond any store": lambda s: s.drop(Q, 1 << 63, 1),
    "drop text": lambda s: s.drop(Q, "1", 1),
    "drop for less than nobody": lambda s: s.drop(Q, 1, -1),
    "drop for nobody knows how many": lambda s: s.drop(Q, 1, None),
    "wait for text": lambda s: s.wait("q", 0),
    "wait for a bad name": lambda s: s.wait(["a b"], 0),
    "wait for less than no time": lambda s: s.wait([Q], -1),
    "wait for nan": lambda s: s.wait([Q], float("nan")),
    "read no name": lambda s: s.read(""),
    "read a long name": lambda s: s.read("x" * 513),
    "read an unprintable name": lambda s: s.read("a\0b"),
    "write no name": lambda s: s.write("", b""),
    "write text": lambda s: s.write("doc", "text"),
    "write a version below zero": lambda s: s.write("doc", b"", version=-1),
    "write half a version": lambda s: s.write("doc", b"", version=0.5),
    "write a time to live below zero": lambda s: s.write("doc", b"", ttl=-1),
    "write a time to live of nan": lambda s: s.write("doc", b"", ttl=float("nan")),
    "settle an id below zero": lambda s: s.settle([Done(Lease(Q, -1, 0))]),
    "settle an id beyond any store": lambda s: s.settle([Done(Lease(Q, 1 << 63, 0))]),
    "settle attempts beyond any store": lambda s: s.settle([Done(Lease(Q, 1, 1 << 63))]),
    "rerank an id beyond any store": lambda s: s.rerank([Rank(Q, 1 << 63, 0)]),
    "find an id below zero": lambda s: s.find(-1),
    "find an id beyond any store": lambda s: s.find(1 << 63),
    "remove an id beyond any store": lambda s: s.remove([1 << 63]),
    "browse after an id below zero": lambda s: s.browse(Q, "ready", after=-1),
    "documents by an unprintable prefix": lambda s: s.documents("\0"),
    "find text": lambda s: s.find("1"),
    "place of text": lambda s: s.place("1"),
    "place of an id below zero": lambda s: s.place(-1),
    "place of an id beyond any store": lambda s: s.place(1 << 63),
    "place counting none": lambda s: s.place(1, 0),
    "place counting half a job": lambda s: s.place(1, 1.5),
    "place counting all of a store": lambda s: s.place(1, 10_001),
    "browse a bad name": lambda s: s.browse("a b", "ready"),
    "browse no state": lambda s: s.browse(Q, "running"),
    "browse less than nothing": lambda s: s.browse(Q, "ready", limit=-1),
    "browse after text": lambda s: s.browse(Q, "ready", after="1"),
    "remove a number": lambda s: s.remove(1),
    "remove text": lambda s: s.remove(["1"]),
    "revive text": lambda s: s.revive("1"),
    "start text now": lambda s: s.start_now("1"),
    "start an id below zero now": lambda s: s.start_now([-1]),
    "start an id beyond any store now": lambda s: s.start_now([1 << 63]),
    "pause a bad name": lambda s: s.pause("a b"),
    "pause until half a moment": lambda s: s.pause(Q, 0.5),
    "pause until before the epoch": lambda s: s.pause(Q, -1),
    "resume a bad name": lambda s: s.resume(""),
    "purge a bad name": lambda s: s.purge("a b", "ready"),
    "purge no state": lambda s: s.purge(Q, "all"),
    "purge before half a moment": lambda s: s.purge(Q, "ready", before=0.5),
    "purge less than nothing": lambda s: s.purge(Q, "ready", limit=-1),
    "documents by a number": lambda s: s.documents(1),
}


class TestClose(Suite):
    async def test_a_second_close_does_no_harm(self, store: Store) -> None:
        await store.close()
        await store.close()

    @pytest.mark.parametrize("verb", VERBS)
    async def test_every_verb_says_that_the_storage_is_closed(self, store: Store, verb: str) -> None:
        await store.close()
        with pytest.raises(StorageClosed):
            await VERBS[verb](store)

    async def test_the_context_manager_gives_the_storage_and_closes_it(self, store: Store) -> None:
        async with store as same:
            assert same is store
            await store.enqueue([NewJob(Q)])
        with pytest.raises(StorageClosed):
            await store.stats()

    async def test_what_was_stored_is_there_when_it_is_opened_again(self, store: Store, world: World) -> None:
        need_shared(world)
        id = await add_one(store, NewJob(Q, b"x", rank=2, key="k", waiter=b"w"))
        before = await info_of(store, id)
        await store.pause("other")
        await store.write("doc", b"1")
        await store.close()
        async with await world.open() as again:
            assert await info_of(again, id) == before
            assert (await stats_of(again, "other")).paused
            assert (await again.read("doc")) is not None
            job = await take_one(again)
            assert await again.waiters(job.lease) == [b"w"]

    async def test_closing_one_handle_leaves_the_others_open(self, store: Store, world: World) -> None:
        need_shared(world)
        other = await world.open()
        await other.enqueue([NewJob(Q)])
        await other.close()
        assert len(await take_ids(store)) == 1


class TestInvalidInput(Suite):
    @pytest.mark.parametrize("call", BAD)
    async def test_is_refused_and_changes_nothing(self, store: Store, call: str) -> None:
        id = await add_one(store, NewJob(Q, key="k", waiter=b"w"))
        before, stats = await info_of(store, id), await store.stats()
        with pytest.raises(InvalidInput) as caught:
            await BAD[call](store)
        assert caught.value.field
        assert await info_of(store, id) == before
        assert await store.stats() == stats
        assert await store.documents("") == []
