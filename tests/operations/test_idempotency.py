"""One request, sent twice, is one request."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from accoda import App, Done, Enqueued, InvalidInput, ManualClock, SystemClock
from accoda.errors import Conflict, InFlight, KeyReused, StorageUnavailable
from accoda.operations import idempotency, jobs
from accoda.operations.new_jobs import NewJobRequest


def requests(count: int = 2, **fields: Any) -> list[NewJobRequest]:
    return [NewJobRequest(queue="q", payload={"n": number}, **fields) for number in range(count)]


async def ready(app: App) -> int:
    queue = (await app.storage.stats()).queues.get("q")
    return 0 if queue is None else queue.ready


async def create(app: App, asked: list[NewJobRequest], key: str, who: str = "") -> list[Enqueued]:
    return (await jobs.create_once(app, asked, key, who)).items


async def test_the_same_request_again_gets_the_same_answer_and_makes_no_job(app: App) -> None:
    first = await create(app, requests(), "key", "anna")
    again = await create(app, requests(), "key", "anna")
    assert first == again and [each.what for each in first] == ["created", "created"]
    assert await ready(app) == 2


async def test_the_answer_says_whether_it_was_given_before(app: App) -> None:
    first = await jobs.create_once(app, requests(), "key", "anna")
    again = await jobs.create_once(app, requests(), "key", "anna")
    assert (first.replayed, again.replayed) == (False, True) and first.items == again.items


async def test_the_answer_holds_when_the_jobs_have_long_ended(app: App) -> None:
    first = await create(app, requests(), "key")
    taken = await app.storage.take("q", 9)
    await app.storage.settle([Done(job.lease) for job in taken])
    assert await create(app, requests(), "key") == first
    assert await ready(app) == 0


async def test_the_order_of_a_payloads_fields_is_no_other_content(app: App) -> None:
    one = [NewJobRequest(queue="q", payload={"a": 1, "b": 2})]
    two = [NewJobRequest(queue="q", payload={"b": 2, "a": 1})]
    assert await create(app, one, "key") == await create(app, two, "key")


async def test_other_content_under_the_same_key_is_refused(app: App) -> None:
    await create(app, requests(), "key")
    with pytest.raises(KeyReused, match="used before with other content"):
        await create(app, requests(3), "key")
    assert await ready(app) == 2


async def test_the_keys_of_two_callers_are_two_keys(app: App) -> None:
    assert await create(app, requests(), "key", "anna") != await create(app, requests(), "key", "ben")
    assert await create(app, requests(1), "ab", "c") != await create(app, requests(1), "b", "ca")


async def test_after_a_day_the_key_is_free(app: App, clock: ManualClock) -> None:
    first = await create(app, requests(), "key")
    await app.storage.settle([Done(job.lease) for job in await app.storage.take("q", 9)])
    clock.advance(idempotency.KEPT + 1)
    assert await create(app, requests(), "key") != first


async def test_of_several_at_the_same_time_one_is_done(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    both = await asyncio.gather(*(create(app, requests(), "key") for _ in range(5)), return_exceptions=True)
    answers = [each for each in both if isinstance(each, list)]
    assert answers and all(answer == answers[0] for answer in answers)
    assert all(isinstance(each, (list, Conflict)) for each in both)
    assert await ready(app) == 2
    await app.close()


async def test_who_comes_between_a_look_and_a_write_wins(app: App) -> None:
    store: Any = await app.connections.get()
    write, answers = store.write, []

    async def be_overtaken(*args: Any, **kwargs: Any) -> Any:
        store.write = write
        answers.append(await create(app, requests(), "key"))
        await app.storage.settle([Done(job.lease) for job in await app.storage.take("q", 9)])
        return await write(*args, **kwargs)

    store.write = be_overtaken
    assert await create(app, requests(), "key") == answers[0]
    assert await ready(app) == 0, "the jobs have ended: to store them again would be to run them again"


async def test_one_that_is_under_way_elsewhere_is_a_conflict_until_it_is_taken_for_dead(
    app: App, clock: ManualClock
) -> None:
    once = idempotency.Once.of("", "key", requests())
    await idempotency._write(app.storage, once, idempotency.Note(once.content, "pending", clock.now()), 0)
    with pytest.raises(InFlight, match="is being done"):
        await create(app, requests(), "key")
    with pytest.raises(KeyReused):
        await create(app, requests(3), "key")
    clock.advance(idempotency.DEAD_AFTER / 1000)
    assert len(await create(app, requests(), "key")) == 2


async def test_a_store_that_fails_in_the_middle_lets_the_next_try_begin_at_once(app: App) -> None:
    store: Any = await app.connections.get()
    enqueue = store.enqueue

    async def lose_the_answer(asked: Any) -> list[Enqueued]:
        await enqueue(asked)
        raise StorageUnavailable("the answer was lost")

    store.enqueue = lose_the_answer
    with pytest.raises(StorageUnavailable):
        await create(app, requests(), "key")
    store.enqueue = enqueue
    answer = await create(app, requests(), "key")
    assert [each.what for each in answer] == ["created", "created"]
    assert await ready(app) == 2, "the jobs of the first try were found by their keys"


async def test_who_was_taken_for_dead_gives_the_answer_of_who_came_after(app: App, clock: ManualClock) -> None:
    store: Any = await app.connections.get()
    enqueue, answers = store.enqueue, []

    async def stand_still(asked: Any) -> list[Enqueued]:
        store.enqueue = enqueue
        clock.advance(31)
        answers.append(await create(app, requests(), "key"))
        await app.storage.settle([Done(job.lease) for job in await app.storage.take("q", 9)])
        return list(await enqueue(asked))

    store.enqueue = stand_still
    assert await create(app, requests(), "key") == answers[0]
    assert await create(app, requests(), "key") == answers[0]


async def test_jobs_with_a_key_of_their_own_keep_it(app: App) -> None:
    [made] = await create(app, requests(1, key="mine"), "key")
    assert (await jobs.get(app, made.id)).key == "mine"
    assert await create(app, requests(1, key="mine"), "key") == [made]


async def test_a_damaged_note_is_written_over(app: App) -> None:
    once = idempotency.Once.of("", "key", requests())
    await app.storage.write(idempotency.PREFIX + once.name, b"\xff{")
    assert len(await create(app, requests(), "key")) == 2


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb"])
async def test_a_key_that_no_header_carries_is_refused(app: App, key: str) -> None:
    with pytest.raises(InvalidInput, match="Idempotency-Key"):
        await create(app, requests(), key)


async def test_bad_input_leaves_no_trace_of_its_key(app: App) -> None:
    with pytest.raises(InvalidInput):
        await create(app, [NewJobRequest(queue="a b")], "key")
    assert len(await create(app, requests(), "key")) == 2


async def killed(url: str, when: str) -> None:
    child = Path(__file__).with_name("idempotent_child.py")
    process = await asyncio.create_subprocess_exec(sys.executable, child, url, when)
    assert await process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_process_that_is_killed_in_the_middle_is_made_good(tmp_path: Path, when: str) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    await killed(url, when)
    asked = [NewJobRequest(queue="q", payload=number) for number in range(3)]
    clock = ManualClock(SystemClock().now())
    async with App(url, clock=clock) as app:
        assert await ready(app) == (3 if when == "after" else 0)
        with pytest.raises(Conflict):
            await create(app, asked, "key", "anna")
        clock.advance(31)
        answer = await create(app, asked, "key", "anna")
        assert await create(app, asked, "key", "anna") == answer
        assert await ready(app) == 3
        assert [(await jobs.get(app, each.id)).payload for each in answer] == [0, 1, 2]


async def test_what_is_not_promised_killed_after_enqueueing_and_the_job_has_ended(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    await killed(url, "after")
    clock = ManualClock(SystemClock().now())
    async with App(url, clock=clock) as app:
        await app.storage.settle([Done(job.lease) for job in await app.storage.take("q", 2)])
        clock.advance(31)
        await create(app, [NewJobRequest(queue="q", payload=number) for number in range(3)], "key", "anna")
        assert await ready(app) == 3, "two were stored once more; the one that still waited was not"
