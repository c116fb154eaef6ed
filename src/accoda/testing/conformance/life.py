"""Opening, closing, and input that cannot be used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from accoda.errors import InvalidInput, StorageClosed
from accoda.model import (
    Bury,
    ById,
    ByKey,
    Cursor,
    Done,
    Head,
    Lanes,
    Lease,
    NewJob,
    Remove,
    Rerank,
    Retry,
    Revive,
    StartNow,
)
from accoda.storage import protocol
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    Q,
    Suite,
    add_one,
    info_of,
    need_shared,
    stats_of,
    take_ids,
    take_one,
    waiters_of,
)
from accoda.testing.store_fixture import StoreFixture

Call = Callable[[Any], Awaitable[object]]
WRONG: Any = 1  # for what a type checker would not let pass
TEXT: Any = "1"
HALF: Any = 0.5
NONE: Any = None
LEASE = Lease(Q, 1, 0, 0)

CALLS: dict[str, Call] = {
    "enqueue": lambda s: s.enqueue([NewJob(Q)]),
    "take": lambda s: s.take(Q, 1),
    "settle": lambda s: s.settle([Done(LEASE)]),
    "extend": lambda s: s.extend([LEASE], 1),
    "wait": lambda s: s.wait([Q], 0),
    "stats": lambda s: s.stats(),
    "read": lambda s: s.read("doc"),
    "write": lambda s: s.write("doc", b""),
    "documents": lambda s: s.documents(""),
    "look": lambda s: s.look(Head(Q)),
    "change": lambda s: s.change([Remove(1)]),
    "browse": lambda s: s.browse(Q, "ready"),
    "pause": lambda s: s.pause(Q, None),
    "purge": lambda s: s.purge(Q, "ready"),
    "set_lanes": lambda s: s.set_lanes(Q, Lanes(limit=1)),
    "lanes": lambda s: s.lanes(Q),
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
    "settle an id below zero": lambda s: s.settle([Done(Lease(Q, -1, 0, 0))]),
    "settle an id beyond any store": lambda s: s.settle([Done(Lease(Q, 1 << 63, 0, 0))]),
    "settle attempts beyond any store": lambda s: s.settle([Done(Lease(Q, 1, 1 << 63, 0))]),
    "settle a moment below zero": lambda s: s.settle([Done(Lease(Q, 1, 0, -1))]),
    "settle half a moment": lambda s: s.settle([Done(Lease(Q, 1, 0, HALF))]),
    "extend a moment beyond any store": lambda s: s.extend([Lease(Q, 1, 0, 1 << 63)], 60),
    "retry with a reason that is no text": lambda s: s.settle([Retry(LEASE, reason=WRONG)]),
    "retry that counts for text": lambda s: s.settle([Retry(LEASE, counts=WRONG)]),
    "bury without a reason": lambda s: s.settle([Bury(LEASE, WRONG)]),
    "bury with follow-ups that are none": lambda s: s.settle([Bury(LEASE, "x", [WRONG])]),
    "extend for no time": lambda s: s.extend([LEASE], 0),
    "extend what is no lease": lambda s: s.extend([1], 60),
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
    "documents by an unprintable prefix": lambda s: s.documents("\0"),
    "documents by a number": lambda s: s.documents(1),
    "look at what is no target": lambda s: s.look(1),
    "look at text": lambda s: s.look(ById(TEXT)),
    "look at an id below zero": lambda s: s.look(ById(-1)),
    "look at an id beyond any store": lambda s: s.look(ById(1 << 63)),
    "look at the head of a bad name": lambda s: s.look(Head("a b")),
    "look at a key of a bad name": lambda s: s.look(ByKey("a b", "k")),
    "look at no key": lambda s: s.look(ByKey(Q, "")),
    "look at a key that is None": lambda s: s.look(ByKey(Q, NONE)),
    "look at a key that is no text": lambda s: s.look(ByKey(Q, WRONG)),
    "look at a key that no job can have": lambda s: s.look(ByKey(Q, "nul\0")),
    "look after less than no waiter": lambda s: s.look(ByKey(Q, "k"), waiters_after=-1),
    "look after half a waiter": lambda s: s.look(ByKey(Q, "k"), waiters_after=0.5),
    "change what is no list": lambda s: s.change(Remove(1)),
    "change an id": lambda s: s.change([1]),
    "change text": lambda s: s.change([Remove(TEXT)]),
    "change an id below zero": lambda s: s.change([StartNow(-1)]),
    "change an id beyond any store": lambda s: s.change([Rerank(1 << 63, 0.0)]),
    "change with less than no waiter": lambda s: s.change([Remove(1, waiters=-1)]),
    "change with half a waiter": lambda s: s.change([Revive(1, waiters=HALF)]),
    "change in a bad name": lambda s: s.change([Rerank(1, 0.0, queue="a b")]),
    "change one job well and one badly": lambda s: s.change([Rerank(1, 5.0), Remove(-1)]),
    "browse a bad name": lambda s: s.browse("a b", "ready"),
    "browse no state": lambda s: s.browse(Q, "running"),
    "browse in no order": lambda s: s.browse(Q, "ready", order="rank"),
    "browse less than nothing": lambda s: s.browse(Q, "ready", limit=-1),
    "browse after an id": lambda s: s.browse(Q, "ready", after=1),
    "browse after an id below zero": lambda s: s.browse(Q, "ready", after=Cursor(0.0, -1)),
    "browse after nan": lambda s: s.browse(Q, "ready", after=Cursor(float("nan"), 1)),
    "browse after text": lambda s: s.browse(Q, "ready", after=Cursor(TEXT, 1)),
    "pause a bad name": lambda s: s.pause("a b", None),
    "pause no name": lambda s: s.pause("", 0),
    "pause until half a moment": lambda s: s.pause(Q, 0.5),
    "pause until before the epoch": lambda s: s.pause(Q, -1),
    "purge a bad name": lambda s: s.purge("a b", "ready"),
    "purge no state": lambda s: s.purge(Q, "all"),
    "purge before half a moment": lambda s: s.purge(Q, "ready", before=0.5),
    "purge less than nothing": lambda s: s.purge(Q, "ready", limit=-1),
    "set lanes of a bad name": lambda s: s.set_lanes("a b", None),
    "set lanes to a number": lambda s: s.set_lanes(Q, 2),
    "lanes of a bad name": lambda s: s.lanes("a b"),
    "lanes, less than nothing": lambda s: s.lanes(Q, limit=-1),
}


class TestClose(Suite):
    async def test_a_second_close_does_no_harm(self, store: Store) -> None:
        await store.close()
        await store.close()

    @pytest.mark.parametrize("verb", [verb for verb in protocol.VERBS if verb != "close"])
    async def test_every_verb_says_that_the_storage_is_closed(self, store: Store, verb: str) -> None:
        await store.close()
        with pytest.raises(StorageClosed):
            await CALLS[verb](store)

    async def test_the_context_manager_gives_the_storage_and_closes_it(self, store: Store) -> None:
        async with store as same:
            assert same is store
            await store.enqueue([NewJob(Q)])
        with pytest.raises(StorageClosed):
            await store.stats()

    async def test_what_was_stored_is_there_when_it_is_opened_again(self, store: Store, fixture: StoreFixture) -> None:
        need_shared(fixture)
        id = await add_one(store, NewJob(Q, b"x", rank=2, key="k", waiter=b"w"))
        before = await info_of(store, id)
        await store.pause("other", None)
        await store.write("doc", b"1")
        await store.close()
        async with await fixture.open() as again:
            assert await info_of(again, id) == before
            assert (await stats_of(again, "other")).paused
            assert (await again.read("doc")) is not None
            job = await take_one(again)
            assert await waiters_of(again, job.lease) == [b"w"]

    async def test_closing_one_handle_leaves_the_others_open(self, store: Store, fixture: StoreFixture) -> None:
        need_shared(fixture)
        other = await fixture.open()
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
