"""The delivery log, and sending again."""

import msgspec
import pytest
from webhook_world import Receiver, World

from accoda.errors import InvalidInput, NotFound
from accoda.model import NewJob
from accoda.webhooks import QUEUE, deliveries, redeliver
from accoda.webhooks.body import moment
from accoda.webhooks.log import NotResent, find


async def test_a_delivered_call_is_in_the_log_for_a_week(world: World, receiver: Receiver) -> None:
    id = await world.call(receiver.url)
    await world.caller().run_once(world.store)
    [seen] = await deliveries(world.store)
    assert (seen.id, seen.state, seen.url, seen.event) == (id, "done", receiver.url, "job.done")
    assert (seen.job, seen.queue, seen.tries, seen.status) == (1000, "emails", 1, 204)
    assert seen.ms is not None and seen.reason is None and seen.ended_at == moment(world.clock.now())
    world.clock.advance(7 * 24 * 3600 + 1)
    assert await deliveries(world.store) == []


async def test_pages_go_from_the_newest_back_or_from_an_id_on(world: World, receiver: Receiver) -> None:
    receiver.answer = 500
    for n in range(25):
        await world.call(receiver.url)
        if n % 3 == 0:
            receiver.answer = (200, 410, 500)[n % 9 // 3]
            await world.caller().run_once(world.store)
        await world.store.enqueue([NewJob("other")] * (n % 4))  # ids of other queues lie between
    ids = sorted(world.made)
    for limit in (1, 4, 7, 25, 100):
        back: list[int] = []
        while page := await deliveries(world.store, before=back[-1] if back else None, limit=limit):
            back += [seen.id for seen in page]
        assert back == ids[::-1]
        on: list[int] = []
        while page := await deliveries(world.store, after=on[-1] if on else 0, limit=limit):
            on += [seen.id for seen in page]
        assert on == ids
    states = {seen.state for seen in await deliveries(world.store)}
    assert states == {"ready", "delayed", "dead", "done"} or states == {"delayed", "dead", "done"}
    dead = await deliveries(world.store, state="dead")
    assert dead and all(seen.state == "dead" and seen.status == 410 for seen in dead)


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 10**6}, {"state": "lost"}, {"after": 1, "before": 2}])
async def test_a_page_that_cannot_be_is_refused(world: World, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        await deliveries(world.store, **wrong)  # type: ignore[arg-type]


async def test_a_dead_call_is_sent_again_with_all_its_tries(world: World, receiver: Receiver) -> None:
    receiver.answer = 410
    id = await world.call(receiver.url)
    await world.caller().run_once(world.store)
    receiver.answer = 500
    assert await redeliver(world.store, id) == id
    await world.caller().run_once(world.store)
    [seen] = await deliveries(world.store)
    assert (seen.state, seen.tries) == ("delayed", 1)


async def test_a_delayed_call_is_sent_now(world: World, receiver: Receiver) -> None:
    receiver.answer = 500
    id = await world.call(receiver.url)
    await world.caller().run_once(world.store)
    receiver.answer = 200
    assert await redeliver(world.store, id) == id
    await world.caller().run_once(world.store)
    [seen] = await deliveries(world.store)
    assert seen.state == "done" and len(receiver.got) == 2
    assert receiver.got[0].body == receiver.got[1].body


async def test_a_delivered_call_stays_and_a_copy_is_sent(world: World, receiver: Receiver) -> None:
    id = await world.call(receiver.url)
    await world.caller().run_once(world.store)
    world.clock.advance(60)
    copy = await redeliver(world.store, id)
    await world.caller().run_once(world.store)
    assert [seen.id for seen in await deliveries(world.store)] == [copy, id]
    first, second = receiver.got
    assert first.id == second.id and first.body == second.body


async def test_what_waits_or_runs_already_is_not_sent_twice(world: World, receiver: Receiver) -> None:
    id = await world.call(receiver.url)
    with pytest.raises(NotResent, match="about to be"):
        await redeliver(world.store, id)
    await world.store.take(QUEUE, 1)
    with pytest.raises(NotResent):
        await redeliver(world.store, id)


async def test_a_dead_call_whose_message_is_on_its_way_again_is_not_revived(world: World, receiver: Receiver) -> None:
    receiver.answer = 410
    id = await world.call(receiver.url, id=5, created_at=1)
    await world.caller().run_once(world.store)
    await world.call(receiver.url, id=5, created_at=1)
    with pytest.raises(NotResent, match="on its way"):
        await redeliver(world.store, id)


async def test_only_calls_are_in_the_log(world: World) -> None:
    [other] = await world.store.enqueue([NewJob("other")])
    for id, hint in ((other.id, f"week; job {other.id} is one of other"), (999_999, "week")):
        with pytest.raises(NotFound, match=f"no webhook call '{id}'; delivered ones are remembered for a {hint}$"):
            await find(world.store, id)
        with pytest.raises(NotFound):
            await redeliver(world.store, id)


async def test_a_call_shows_its_message(world: World) -> None:
    id = await world.call("https://example.com/", reason="no such user")
    seen, message = await find(world.store, id)
    assert seen.state == "ready" and message is not None
    assert msgspec.json.decode(message)["data"]["reason"] == "no such user"


async def test_what_cannot_be_read_is_shown_as_such(world: World) -> None:
    [answer] = await world.store.enqueue([NewJob(QUEUE, b"nonsense")])
    [seen] = await deliveries(world.store)
    assert (seen.id, seen.url, seen.job) == (answer.id, "?", None)
    await world.store.take(QUEUE, 1)
    assert (await find(world.store, answer.id))[1] is None
