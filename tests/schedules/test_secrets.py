"""Secret fields of a schedule's payload: hidden wherever it is shown, and kept when what is shown is sent back."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from schedule_world import START, World, every, payload_of

from accoda import App
from accoda.errors import InvalidInput
from accoda.schedules import apply, create, get, list_all, put, store_declared
from accoda.schedules.secrets import MISSING, kept, shown

CARD = {"card": "4111", "to": {"phone": "06"}, "sum": 3}
SHOWN = {"card": "•••", "to": {"phone": "•••"}, "sum": 3}


def paying(world: World, *secret: str) -> App:
    app = App("memory://", clock=world.clock)

    @app.handler("reports", secret=secret or ("card", "to.phone"))
    async def pay(one: dict[str, Any]) -> None: ...

    return app


async def seen(world: World) -> Any:
    (view,) = await list_all(world.store)
    assert view == await get(world.store, "report") and view.schedule is not None
    return view.schedule.payload


async def stored(world: World) -> Any:
    view = await get(world.store, "report", secrets=True)
    assert view.schedule is not None
    return view.schedule.payload


async def test_views_hide_them_without_any_app(world: World) -> None:
    await create(world.store, every(60, payload=CARD), app=paying(world))
    assert await seen(world) == SHOWN and await stored(world) == CARD
    await world.tick(60)
    assert await seen(world) == SHOWN
    assert [payload_of(job) for job in await world.jobs()] == [CARD]


async def test_what_is_shown_and_sent_back_keeps_the_secrets(world: World) -> None:
    await create(world.store, every(60, payload=CARD), app=paying(world))
    for app in (None, paying(world)):
        await put(world.store, every(60, payload={**SHOWN, "sum": 4}), app=app)
        assert await stored(world) == {**CARD, "sum": 4}
    await put(world.store, every(60, payload={**SHOWN, "card": "4222"}))
    assert await stored(world) == {**CARD, "card": "4222"} and await seen(world) == SHOWN
    await world.tick(60)
    assert [payload_of(job) for job in await world.jobs()] == [{**CARD, "card": "4222"}]


async def test_where_nothing_is_stored_it_is_refused(world: World) -> None:
    for call in (create, put):
        with pytest.raises(
            InvalidInput, match=r"payload\.card says '•••', which only stands for a secret, and nothing"
        ):
            await call(world.store, every(60, payload=SHOWN), app=paying(world))
    assert await list_all(world.store) == []
    await create(world.store, every(60, payload={"sum": 3}), app=paying(world))
    with pytest.raises(InvalidInput, match="give the value itself"):
        await put(world.store, every(60, payload=SHOWN))
    assert await stored(world) == {"sum": 3}


async def test_what_has_ended_hides_them_and_takes_them_back(world: World) -> None:
    end = datetime.fromtimestamp(START / 1000 + 90, UTC)
    await create(world.store, every(60, payload=CARD, ends_at=end), app=paying(world))
    await world.tick(60)
    await world.tick()
    assert (await get(world.store, "report")).state == "ended" and await seen(world) == SHOWN
    await put(world.store, every(60, payload=SHOWN))
    assert await stored(world) == CARD and await seen(world) == SHOWN


async def test_code_and_files_know_the_values(world: World) -> None:
    app = paying(world)
    with pytest.raises(InvalidInput, match="give the value itself"):
        app.every(60, name="report", payload=SHOWN)(app.handlers["reports"])
    assert app.schedules == {}
    files = [every(60, payload=CARD, source="file")]
    await apply(world.store, files, app=app)
    assert await seen(world) == SHOWN
    assert (await apply(world.store, files, app=app)).unchanged == ("report",)
    assert (await apply(world.store, files)).unchanged == ("report",)


async def test_only_the_code_that_declares_it_uncovers_a_field(world: World) -> None:
    for app in (paying(world), paying(world, "card")):
        app.every(60, name="report", payload=CARD)(app.handlers["reports"])
        await store_declared(app, world.store)
    assert await seen(world) == {**CARD, "card": "•••"}
    await put(world.store, every(60, payload=CARD), app=paying(world, "sum"))
    assert await seen(world) == {**CARD, "card": "•••", "sum": "•••"}


async def test_a_worker_that_starts_hides_what_people_stored_before_it_was_secret(world: World) -> None:
    await create(world.store, every(60, payload=CARD), app=paying(world, "card"))
    await store_declared(paying(world), world.store)
    assert await seen(world) == SHOWN


async def test_a_record_that_is_stored_as_a_list_is_hidden_as_a_whole(world: World) -> None:
    class Card(msgspec.Struct, array_like=True):
        owner: str
        card: str

    app = App("memory://", clock=world.clock)

    @app.every(60, name="report", queue="reports", payload=Card("Anna", "4111"), secret=("card",))
    async def pay(one: Card) -> None: ...

    await store_declared(app, world.store)
    assert await seen(world) == "•••"
    await put(world.store, every(30, payload="•••"))
    await world.tick(30)
    assert [payload_of(job) for job in await world.jobs()] == [["Anna", "4111"]]


LINES = {"lines": [{"iban": "A", "pin": 1, "sum": 1}, {"iban": "B", "pin": 2, "sum": 2}]}
NAMES = ("lines.iban", "lines.pin")


def lines(*told: tuple[Any, Any, int]) -> dict[str, Any]:
    return {"lines": [{"iban": iban, "pin": pin, "sum": each} for iban, pin, each in told]}


def test_in_a_list_they_are_kept_if_all_is_as_it_was_shown() -> None:
    assert kept(shown(LINES, NAMES), LINES, NAMES) == LINES
    changed = lines(("•••", "•••", 1), ("C", "•••", 2))
    assert kept(changed, LINES, NAMES) == lines(("A", 1, 1), ("C", 2, 2))
    new = lines(("C", 5, 5))
    assert kept(new, LINES, NAMES) == new


@pytest.mark.parametrize(
    "told",
    [
        lines(("•••", "•••", 2)),  # the first is gone
        lines(("•••", "•••", 2), ("•••", "•••", 1)),  # they have changed places
        lines(("•••", "•••", 1), ("•••", "•••", 2), ("•••", "•••", 3)),
        {"lines": ["•••"]},
        {"lines": ["•••", "•••"]},
    ],
)
def test_in_a_list_that_changed_no_secret_comes_to_another_element(told: Any) -> None:
    with pytest.raises(InvalidInput, match=r"payload.lines says '•••', .* in a list that is not as it is stored"):
        kept(told, LINES, NAMES)


def test_only_the_place_of_a_secret_is_looked_at() -> None:
    told = {"note": "•••", "to": {"name": "•••", "phone": "•••"}}
    assert kept(told, {"to": {"phone": "06"}}, ("to.phone",)) == {**told, "to": {"name": "•••", "phone": "06"}}
    assert kept("•••", MISSING, ()) == "•••"
    others: tuple[Any, ...] = (MISSING, "text", {"to": "text"}, {"to": {}})
    for other in others:
        with pytest.raises(InvalidInput):
            kept(told, other, ("to.phone",))
    assert kept({"to": "•••"}, {"to": ["Anna", "06"]}, ("to.phone",)) == {"to": ["Anna", "06"]}


def test_what_is_shown_has_the_shape_of_what_is_stored() -> None:
    assert shown({"to": [{"phone": "06"}, {}]}, ("to.phone",)) == {"to": [{"phone": "•••"}, {}]}
    assert shown({"to": ["06", {"phone": "06"}]}, ("to.phone",)) == {"to": "•••"}
    assert shown({"to": [["06"]]}, ("to.phone",)) == {"to": ["•••"]}
    assert shown({"to": None, "x": [1]}, ("to.phone",)) == {"to": None, "x": [1]}
    assert shown([1, 2], ()) == [1, 2]
