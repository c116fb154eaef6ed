"""What a storage must carry unharmed: any bytes, any text."""

from __future__ import annotations

import pytest

from accoda.model import Bury, Done, NewJob, Retry, clean
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import Q, Suite, add, add_one, info_of, take_one, waiters_of

EVERY_BYTE = bytes(range(256))
PAYLOADS = [b"", b"\x00", b"\x00\x00end", EVERY_BYTE, b"\xff" * 1000, EVERY_BYTE * 800, "größer 🎺".encode(), b"'\";--"]
KEYS = [
    "k",
    "K",
    " k",
    "k:1",
    "{k}",
    "0",
    " ",
    "tab\tline\n",
    "größer 🎺",
    'it\'s "quoted"',
    "a%_*[b]?\\",
    "\u00e9",
    "e\u0301",
    "x" * 512,
]
TEXTS = [
    "",
    'it\'s "broken"; DROP TABLE jobs;--',
    "größer 🎺\n\ttrace",
    "nul\0inside",
    "lone \ud800 half",
    "x" * 20_000,
]
MOST_WAITER = 65_536  # bytes
QUEUES = ["q", "Q", "0", "_", "a.b-c_d", "9." * 64, "select", "q.deliver"]


class TestContent(Suite):
    @pytest.mark.parametrize("data", PAYLOADS, ids=lambda data: f"{len(data)}-{data[:6].hex()}")
    async def test_any_bytes_come_back_as_they_were(self, store: Store, data: bytes) -> None:
        id = await add_one(store, NewJob(Q, data, key="k", waiter=data[:MOST_WAITER], keep_for=60))
        job = await take_one(store)
        assert job.data == data
        assert await waiters_of(store, job.lease) == [data[:MOST_WAITER]]
        assert await store.settle([Done(job.lease, result=data)]) == []
        info = await info_of(store, id)
        assert (info.data, info.result) == (data, data)
        await store.write("doc", data)
        document = await store.read("doc")
        assert document is not None
        assert document.value == data

    async def test_no_result_and_an_empty_result_are_told_apart(self, store: Store) -> None:
        ids = await add(store, NewJob(Q, keep_for=60), NewJob(Q, keep_for=60))
        none, empty = await store.take(Q, 2)
        assert await store.settle([Done(none.lease), Done(empty.lease, result=b"")]) == []
        assert [(await info_of(store, id)).result for id in ids] == [None, b""]

    async def test_keys_that_look_alike_are_different_keys(self, store: Store) -> None:
        answers = await store.enqueue([NewJob(Q, key=key) for key in KEYS])
        assert [answer.what for answer in answers] == ["created"] * len(KEYS)
        again = await store.enqueue([NewJob(Q, key=key) for key in KEYS])
        assert [(answer.id, answer.what) for answer in again] == [(answer.id, "kept") for answer in answers]
        assert [job.key for job in await store.take(Q, 100)] == KEYS

    @pytest.mark.parametrize("text", TEXTS, ids=lambda text: f"{len(text)}-{text[:9]!a}")
    async def test_any_reason_can_be_stored(self, store: Store, text: str) -> None:
        retried, buried = await add(store, NewJob(Q), NewJob(Q))
        first, second = await store.take(Q, 2)
        assert await store.settle([Retry(first.lease, reason=text), Bury(second.lease, text)]) == []
        for id in (retried, buried):
            assert ((await info_of(store, id)).reason or "") == clean(text)

    @pytest.mark.parametrize("worker", ["host-1:42", "größer 🎺", "it's", "nul\0", "\udfff"], ids=ascii)
    async def test_any_worker_name_can_be_stored(self, store: Store, worker: str) -> None:
        id = await add_one(store, NewJob(Q))
        await take_one(store, worker=worker)
        assert (await info_of(store, id)).worker == clean(worker)

    async def test_any_allowed_queue_name_works_and_is_a_queue_of_its_own(self, store: Store) -> None:
        ids = await add(store, *(NewJob(queue, queue.encode()) for queue in QUEUES))
        for id, queue in zip(ids, QUEUES, strict=True):
            assert [(job.id, job.queue) for job in await store.take(queue, 9)] == [(id, queue)]
        assert set(QUEUES) <= set((await store.stats()).queues)

    async def test_a_cost_as_large_as_allowed_is_kept(self, store: Store) -> None:
        await add_one(store, NewJob(Q, cost=1 << 53))
        assert await store.take(Q, 1, max_cost=(1 << 53) - 1) == []
        (job,) = await store.take(Q, 1, max_cost=1 << 53)
        assert job.cost == 1 << 53
