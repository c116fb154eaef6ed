"""The delivery log, and sending again."""

import msgspec
import pytest
from webhook_calls import Calls, Receiver

from accoda.errors import Conflict, InvalidInput, NotFound
from accoda.model import NewJob
from accoda.times import rfc3339
from accoda.webhooks.call import QUEUE
from accoda.webhooks.log import deliveries, find, redeliver


async def test_a_delivered_call_is_in_the_log_for_a_week(calls: Calls, receiver: Receiver) -> None:
    id = await calls.add(receiver.url)
    await calls.loop().run_once(calls.store)
    [seen] = await deliveries(calls.store)
    assert (seen.id, seen.state, seen.url, seen.event) == (id, "done", receiver.url, "job.done")
    assert (seen.job, seen.queue, seen.tries, seen.status) == (1000, "emails", 1, 204)
    assert seen.ms is not None and seen.reason is None and seen.ended_at == rfc3339(calls.clock.now())
    calls.clock.advance(7 * 24 * 3600 + 1)
    assert await deliveries(calls.store) == []


async def test_pages_go_back_from_the_newest(calls: Calls, receiver: Receiver) -> None:
    receiver.answer = 500
    for n in range(25):
        await calls.add(receiver.url)
        if n % 3 == 0:
            receiver.answer = (200, 410, 500)[n % 9 // 3]
            await calls.loop().run_once(calls.store)
        await calls.store.enqueue([NewJob("other")] * (n % 4))  # ids of other queues lie between
    ids = sorted(calls.made)
    for limit in (1, 4, 7, 25, 100):
        back: list[int] = []
        while page := await deliveries(calls.store, before=back[-1] if back else None, limit=limit):
            back += [seen.id for seen in page]
        assert back == ids[::-1]
    states = {seen.state for seen in await deliveries(calls.store)}
    assert states == {"ready", "delayed", "dead", "done"} or states == {"delayed", "dead", "done"}
    dead = await deliveries(calls.store, state="dead")
    assert dead and all(seen.state == "dead" and seen.status == 410 for seen in dead)


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 10**6}, {"state": "lost"}])
async def test_an_invalid_page_is_refused(calls: Calls, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        await deliveries(calls.store, **wrong)  # type: ignore[arg-type]


async def test_a_dead_call_is_sent_again_with_all_its_tries(calls: Calls, receiver: Receiver) -> None:
    receiver.answer = 410
    id = await calls.add(receiver.url)
    await calls.loop().run_once(calls.store)
    receiver.answer = 500
    assert await redeliver(calls.store, id) == id
    await calls.loop().run_once(calls.store)
    [seen] = await deliveries(calls.store)
    assert (seen.state, seen.tries) == ("delayed", 1)


async def test_a_delayed_call_is_sent_now(calls: Calls, receiver: Receiver) -> None:
    receiver.answer = 500
    id = await calls.add(receiver.url)
    await calls.loop().run_once(calls.store)
    receiver.answer = 200
    assert await redeliver(calls.store, id) == id
    await calls.loop().run_once(calls.store)
    [seen] = await deliveries(calls.store)
    assert seen.state == "done" and len(receiver.got) == 2
    assert receiver.got[0].body == receiver.got[1].body


async def test_a_delivered_call_stays_and_a_copy_is_sent(calls: Calls, receiver: Receiver) -> None:
    id = await calls.add(receiver.url)
    await calls.loop().run_once(calls.store)
    calls.clock.advance(60)
    copy = await redeliver(calls.store, id)
    await calls.loop().run_once(calls.store)
    assert [seen.id for seen in await deliveries(calls.store)] == [copy, id]
    first, second = receiver.got
    assert first.id == second.id and first.body == second.body


async def test_a_call_that_waits_or_runs_already_is_not_sent_twice(calls: Calls, receiver: Receiver) -> None:
    id = await calls.add(receiver.url)
    with pytest.raises(Conflict, match="about to be"):
        await redeliver(calls.store, id)
    await calls.store.take(QUEUE, 1)
    with pytest.raises(Conflict):
        await redeliver(calls.store, id)


async def test_a_dead_call_whose_message_is_on_its_way_again_is_not_revived(calls: Calls, receiver: Receiver) -> None:
    receiver.answer = 410
    id = await calls.add(receiver.url, id=5, created_at=1)
    await calls.loop().run_once(calls.store)
    await calls.add(receiver.url, id=5, created_at=1)
    with pytest.raises(Conflict, match="on its way"):
        await redeliver(calls.store, id)


async def test_only_calls_are_in_the_log(calls: Calls) -> None:
    [other] = await calls.store.enqueue([NewJob("other")])
    for id, hint in ((other.id, f"week; job {other.id} is one of other"), (999_999, "week")):
        with pytest.raises(NotFound, match=f"no webhook call '{id}'; delivered ones are remembered for a {hint}$"):
            await find(calls.store, id)
        with pytest.raises(NotFound):
            await redeliver(calls.store, id)


async def test_a_call_shows_its_message(calls: Calls) -> None:
    id = await calls.add("https://example.com/", reason="no such user")
    seen, message = await find(calls.store, id)
    assert seen.state == "ready" and message is not None
    assert msgspec.json.decode(message)["data"]["reason"] == "no such user"


async def test_a_call_that_cannot_be_read_is_shown_as_such(calls: Calls) -> None:
    [answer] = await calls.store.enqueue([NewJob(QUEUE, b"nonsense")])
    [seen] = await deliveries(calls.store)
    assert (seen.id, seen.url, seen.job) == (answer.id, "?", None)
    await calls.store.take(QUEUE, 1)
    assert (await find(calls.store, answer.id))[1] is None
