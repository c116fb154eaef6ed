"""Changes to the one document: coalesced, once each, whatever becomes of a write."""

import asyncio
from typing import Any, cast

import pytest

from accoda.budget import Ask, Books, Budget, Grant, Observation, Settlement, Spent, StorageClock, Wait
from accoda.budget import books as module
from accoda.budget.books import DOCUMENT
from accoda.clock import ManualClock
from accoda.errors import InvalidInput, StorageReadOnly, StorageUnavailable
from accoda.model import Document
from accoda.storage.memory import MemoryStorage
from accoda.storage.protocol import Storage

BUDGETS = {"keepa": Budget("keepa", 20, 20, 60), "requests": Budget("requests", 5, 5, 1, counts="jobs")}


class Line:
    """The way to a real store, which counts, delays and loses what goes over it."""

    def __init__(self, store: MemoryStorage) -> None:
        self.store = store
        self.calls: list[str] = []
        self.lose_answers = 0  # writes that are done, but whose answer is lost
        self.lose_writes = 0  # writes that do not arrive
        self.down: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def read(self, name: str) -> Document | None:
        self._look("read")
        await asyncio.sleep(0)  # others come in between, as they do on a wire
        return await self.store.read(name)

    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        self._look("write")
        await asyncio.sleep(0)
        if self.gate is not None:
            await self.gate.wait()
        if self.lose_writes:
            self.lose_writes -= 1
            raise StorageUnavailable("the write did not arrive")
        written = await self.store.write(name, value, version=version, ttl=ttl)
        if self.lose_answers:
            self.lose_answers -= 1
            raise StorageUnavailable("the answer was lost")
        return written

    def _look(self, verb: str) -> None:
        self.calls.append(verb)
        if self.down is not None:
            raise self.down


class Bench:
    """Books of several processes on one store."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStorage(self.clock)

    def books(self) -> tuple[Books, Line]:
        line = Line(self.store)

        async def get() -> Storage:
            return cast(Storage, line)

        return Books(get, BUDGETS, StorageClock(get, self.clock)), line

    async def left(self, name: str = "keepa") -> tuple[float, float]:
        view = (await self.books()[0].views())[name]
        return view.left, view.reserved


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.0)


def ask(cost: int = 5, queue: str = "deals", budgets: tuple[str, ...] = ("keepa",), most: int = 1) -> Ask:
    return Ask(queue, budgets, cost, most_jobs=most)


async def grant(books: Books, cost: int = 5, **more: Any) -> Grant:
    answer = await books.reserve(ask(cost, **more))
    assert isinstance(answer, Grant)
    return answer


async def test_a_change_is_one_write_once_the_document_is_known(bench: Bench) -> None:
    books, line = bench.books()
    first = await grant(books)
    assert line.calls == ["read", "write"]
    assert await books.settle(Settlement(first, Spent(1, 5)))
    await grant(books)
    assert line.calls == ["read", "write", "write", "write"]
    assert await bench.left() == (15, 5)


async def test_the_callers_of_one_process_share_a_write(bench: Bench) -> None:
    books, line = bench.books()
    line.gate = asyncio.Event()
    calls = [asyncio.create_task(books.reserve(ask(5, f"q{n}"))) for n in range(10)]
    await asyncio.sleep(0)
    line.gate.set()
    answers = await asyncio.gather(*calls)
    assert line.calls.count("write") <= 2
    assert [isinstance(answer, Grant) for answer in answers] == [True] * 4 + [False] * 6
    assert len({answer.id for answer in answers if isinstance(answer, Grant)}) == 4
    assert await bench.left() == (20, 20)


async def test_workers_of_several_processes_never_reserve_more_than_there_is(bench: Bench) -> None:
    writers = [bench.books()[0] for _ in range(8)]
    answers = await asyncio.gather(*(books.reserve(ask(1)) for books in writers for _ in range(5)))
    assert sum(isinstance(answer, Grant) for answer in answers) == 20
    assert await bench.left() == (20, 20)


async def test_what_was_not_taken_goes_back_and_an_exact_take_writes_nothing(bench: Bench) -> None:
    books, line = bench.books()
    one = await grant(books, 5, most=3)
    assert (one.count, one.max_cost) == (3, 15)
    kept = await books.keep(one, 2, 7)
    assert (kept.count, kept.max_cost, kept.amounts) == (2, 7, {"keepa": 7.0})
    assert await bench.left() == (20, 7)
    before = list(line.calls)
    two = await grant(books, 5)
    assert await books.keep(two, 1, 5) == two
    assert line.calls == [*before, "write"]
    await books.keep(two, 0, 0)
    assert await bench.left() == (20, 7)
    assert list((await books.views())["keepa"].reservations) == [one.id]


async def test_several_budgets_are_reserved_together_or_not_at_all(bench: Bench) -> None:
    books, _ = bench.books()
    both = await grant(books, 3, budgets=("requests", "keepa"), most=10)
    assert (both.count, both.max_cost) == (5, 15)
    answer = await books.reserve(ask(1, "other", ("keepa", "requests")))
    assert isinstance(answer, Wait) and answer.budget == "requests"
    assert await bench.left("keepa") == (20, 15)


async def test_a_conflict_touches_nothing_that_was_granted_before(bench: Bench) -> None:
    books, line = bench.books()
    await grant(books, 5)
    await grant(bench.books()[0], 2)
    await grant(books, 3)
    assert line.calls == ["read", "write", "write", "read", "write"]
    await books.flush()
    assert await bench.left() == (20, 10)


@pytest.mark.parametrize("lost", ["lose_answers", "lose_writes"])
async def test_a_change_whose_answer_is_lost_happens_once(bench: Bench, lost: str) -> None:
    books, line = bench.books()
    other, _ = bench.books()
    setattr(line, lost, 1)
    one = await grant(books)
    assert await bench.left() == (20, 5)
    await grant(other, 2)  # another writes in between, so the version says nothing
    setattr(line, lost, 2)
    assert await books.settle(Settlement(one, Spent(1, 6)))
    assert await bench.left() == (14, 2)
    assert await books.settle(Settlement(await grant(books, 1), Spent(1, 1)))
    assert await bench.left() == (13, 2)


async def test_a_settlement_that_the_store_did_not_take_comes_later_and_once(bench: Bench, impatient: None) -> None:
    books, line = bench.books()
    one = await grant(books)
    line.lose_answers = 1  # it is done, and its caller does not know
    assert await books.settle(Settlement(one, Spent(1, 5))) is False
    two = await grant(bench.books()[0], 3)
    line.down = StorageUnavailable("away")
    assert await books.settle(Settlement(two, Spent(1, 3))) is False
    with pytest.raises(StorageUnavailable):
        await books.reserve(ask())
    line.down = None
    assert await books.flush()
    assert await bench.left() == (12, 0)
    assert await books.flush()
    assert await bench.left() == (12, 0)


async def test_what_was_reserved_for_a_caller_that_has_left_is_given_back(bench: Bench, impatient: None) -> None:
    books, line = bench.books()
    line.lose_answers = 1
    with pytest.raises(StorageUnavailable):  # it is reserved, but the caller was told that the store is away
        await books.reserve(ask(5))
    assert await bench.left() == (20, 5)
    await grant(books, 2)
    await books.flush()
    assert await bench.left() == (20, 2)


async def test_a_caller_that_is_cancelled_during_the_write_leaves_nothing_behind(bench: Bench) -> None:
    books, line = bench.books()
    line.gate = asyncio.Event()
    call = asyncio.create_task(books.reserve(ask(5)))
    while "write" not in line.calls:
        await asyncio.sleep(0)
    call.cancel()
    line.gate.set()
    await asyncio.gather(call, return_exceptions=True)
    await books.flush()
    assert await bench.left() == (20, 0)


async def test_a_settlement_after_its_reservation_ended_is_accounted_for_once(bench: Bench) -> None:
    books, _ = bench.books()
    one = await grant(books, 5)
    bench.clock.advance(66)
    assert await bench.left() == (20, 0)  # those of the dead come back
    assert await books.settle(Settlement(one, Spent(1, 5)))
    assert await bench.left() == (15, 0)


async def test_a_reservation_that_is_renewed_lasts(bench: Bench) -> None:
    books, _ = bench.books()
    one = await grant(books, 5)
    for _ in range(3):
        bench.clock.advance(40)
        await books.renew([one], 60)
    assert await bench.left() == (20, 5)


async def test_one_bad_change_fails_alone(bench: Bench) -> None:
    books, _ = bench.books()
    answers = await asyncio.gather(
        books.reserve(ask(5)), books.reserve(ask(5, budgets=("nope",))), books.reserve(ask(5)), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [Grant, InvalidInput, Grant]
    assert "there is no budget 'nope'" in str(answers[1])


async def test_a_store_that_refuses_for_good_is_told_at_once(bench: Bench) -> None:
    books, line = bench.books()
    line.down = StorageReadOnly("read only")
    with pytest.raises(StorageReadOnly):
        await books.reserve(ask())


async def test_a_wait_is_told_from_what_is_read_not_from_what_was_known(bench: Bench) -> None:
    books, line = bench.books()
    other, _ = bench.books()
    mine = await grant(other, 20)
    assert isinstance(await books.reserve(ask(5)), Wait)  # leaves a claim
    line.calls.clear()
    assert isinstance(await books.reserve(ask(5)), Wait)
    assert line.calls == ["read"]  # the claim is new enough: nothing to write
    await other.keep(mine, 0, 0)
    assert isinstance(await books.reserve(ask(5)), Grant)


@pytest.mark.parametrize("damage", [b"", b"\xff", b"[]", b'{"accounts": 7}', b'{"accounts": {"keepa": {"left": "x"}}}'])
async def test_a_document_that_cannot_be_read_means_nothing_is_left_for_one_period(bench: Bench, damage: bytes) -> None:
    await bench.store.write(DOCUMENT, damage)
    books, _ = bench.books()
    answer = await books.reserve(ask(5))
    assert isinstance(answer, Wait) and answer.until == bench.clock.now() + 60_000
    bench.clock.advance(60)
    assert isinstance(await books.reserve(ask(5)), Grant)


async def test_one_damaged_account_leaves_the_others(bench: Bench) -> None:
    books, _ = bench.books()
    await grant(books, 15, budgets=("keepa",))
    document = await bench.store.read(DOCUMENT)
    assert document is not None
    damaged = document.value.replace(b'"accounts":{', b'"accounts":{"requests":{"capacity":-1},')
    await bench.store.write(DOCUMENT, damaged)
    assert await bench.left("keepa") == (20, 15)
    assert await bench.left("requests") == (0, 0)


async def test_the_document_survives_and_is_shared(bench: Bench) -> None:
    one, _ = bench.books()
    await one.settle(Settlement(await grant(one, 8), Spent(1, 8), (Observation("keepa", 3, bench.clock.now()),)))
    await one.close(["keepa"], bench.clock.now() + 5000)
    view = (await bench.books()[0].views())["keepa"]
    assert (view.left, view.used_today, view.observed_left) == (3, 8, 3)
    assert view.closed_until == bench.clock.now() + 5000 and view.available == 0
    answer = await bench.books()[0].reserve(ask(3))
    assert isinstance(answer, Wait) and answer.until == bench.clock.now() + 5000
    await one.reopen(["keepa"])
    assert isinstance(await one.reserve(ask(3)), Grant)


async def test_the_books_keep_every_account_in_one_small_document(bench: Bench) -> None:
    books, _ = bench.books()
    for _ in range(200):
        one = await grant(books, 1, budgets=("keepa", "requests"))
        await books.settle(Settlement(one, Spent(1, 1)))
        bench.clock.advance(4)
    documents = await bench.store.documents("")
    assert [document.name for document in documents] == [DOCUMENT]
    assert len(documents[0].value) < 1000
