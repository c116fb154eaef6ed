"""Secret fields of a schedule's payload: hidden wherever it is shown, and kept when what is shown is sent back."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from schedule_env import START, Env, every, payload_of

from accoda import App
from accoda.errors import InvalidInput
from accoda.schedules import apply, create, get, list_all, put, store_declared
from accoda.schedules.secrets import MISSING, restored, shown

CARD = {"card": "4111", "to": {"phone": "06"}, "sum": 3}
SHOWN = {"card": "•••", "to": {"phone": "•••"}, "sum": 3}


def paying(env: Env, *secret: str) -> App:
    app = App("memory://", clock=env.clock)

    @app.handler("reports", secret=secret or ("card", "to.phone"))
    async def pay(one: dict[str, Any]) -> None: ...

    return app


async def seen(env: Env) -> Any:
    (view,) = await list_all(env.store)
    assert view == await get(env.store, "report") and view.schedule is not None
    return view.schedule.payload


async def stored(env: Env) -> Any:
    view = await get(env.store, "report", secrets=True)
    assert view.schedule is not None
    return view.schedule.payload


async def test_views_hide_secrets_without_an_app(env: Env) -> None:
    await create(env.store, every(60, payload=CARD), app=paying(env))
    assert await seen(env) == SHOWN and await stored(env) == CARD
    await env.tick(60)
    assert await seen(env) == SHOWN
    assert [payload_of(job) for job in await env.jobs()] == [CARD]


async def test_a_payload_that_is_sent_back_as_shown_keeps_the_secrets(env: Env) -> None:
    await create(env.store, every(60, payload=CARD), app=paying(env))
    for app in (None, paying(env)):
        await put(env.store, every(60, payload={**SHOWN, "sum": 4}), app=app)
        assert await stored(env) == {**CARD, "sum": 4}
    await put(env.store, every(60, payload={**SHOWN, "card": "4222"}))
    assert await stored(env) == {**CARD, "card": "4222"} and await seen(env) == SHOWN
    await env.tick(60)
    assert [payload_of(job) for job in await env.jobs()] == [{**CARD, "card": "4222"}]


async def test_a_hidden_value_is_refused_if_nothing_is_stored(env: Env) -> None:
    for call in (create, put):
        with pytest.raises(
            InvalidInput, match=r"payload\.card says '•••', which only stands for a secret, and nothing"
        ):
            await call(env.store, every(60, payload=SHOWN), app=paying(env))
    assert await list_all(env.store) == []
    await create(env.store, every(60, payload={"sum": 3}), app=paying(env))
    with pytest.raises(InvalidInput, match="give the value itself"):
        await put(env.store, every(60, payload=SHOWN))
    assert await stored(env) == {"sum": 3}


async def test_an_ended_schedule_hides_and_restores_secrets(env: Env) -> None:
    end = datetime.fromtimestamp(START / 1000 + 90, UTC)
    await create(env.store, every(60, payload=CARD, ends_at=end), app=paying(env))
    await env.tick(60)
    await env.tick()
    assert (await get(env.store, "report")).state == "ended" and await seen(env) == SHOWN
    await put(env.store, every(60, payload=SHOWN))
    assert await stored(env) == CARD and await seen(env) == SHOWN


async def test_code_and_files_give_the_values_themselves(env: Env) -> None:
    app = paying(env)
    with pytest.raises(InvalidInput, match="give the value itself"):
        app.every(60, name="report", payload=SHOWN)(app.handlers["reports"].by_type[None])
    assert app.schedules == {}
    files = [every(60, payload=CARD, source="file")]
    await apply(env.store, files, app=app)
    assert await seen(env) == SHOWN
    assert (await apply(env.store, files, app=app)).unchanged == ("report",)
    assert (await apply(env.store, files)).unchanged == ("report",)


async def test_only_the_declaring_code_can_reveal_a_field(env: Env) -> None:
    for app in (paying(env), paying(env, "card")):
        app.every(60, name="report", payload=CARD)(app.handlers["reports"].by_type[None])
        await store_declared(app, env.store)
    assert await seen(env) == {**CARD, "card": "•••"}
    await put(env.store, every(60, payload=CARD), app=paying(env, "sum"))
    assert await seen(env) == {**CARD, "card": "•••", "sum": "•••"}


async def test_a_starting_worker_hides_fields_that_were_stored_before_they_were_secret(env: Env) -> None:
    await create(env.store, every(60, payload=CARD), app=paying(env, "card"))
    await store_declared(paying(env), env.store)
    assert await seen(env) == SHOWN


async def test_a_record_that_is_stored_as_a_list_is_hidden_as_a_whole(env: Env) -> None:
    class Card(msgspec.Struct, array_like=True):
        owner: str
        card: str

    app = App("memory://", clock=env.clock)

    @app.every(60, name="report", queue="reports", payload=Card("Anna", "4111"), secret=("card",))
    async def pay(one: Card) -> None: ...

    await store_declared(app, env.store)
    assert await seen(env) == "•••"
    await put(env.store, every(30, payload="•••"))
    await env.tick(30)
    assert [payload_of(job) for job in await env.jobs()] == [["Anna", "4111"]]


LINES = {"lines": [{"iban": "A", "pin": 1, "sum": 1}, {"iban": "B", "pin": 2, "sum": 2}]}
NAMES = ("lines.iban", "lines.pin")


def lines(*told: tuple[Any, Any, int]) -> dict[str, Any]:
    return {"lines": [{"iban": iban, "pin": pin, "sum": each} for iban, pin, each in told]}


def test_in_a_list_secrets_are_restored_if_it_is_unchanged() -> None:
    assert restored(shown(LINES, NAMES), LINES, NAMES) == LINES
    new = lines(("C", 5, 5))
    assert restored(new, LINES, NAMES) == new


@pytest.mark.parametrize(
    "told",
    [
        lines(("•••", "•••", 2)),  # the first is gone
        lines(("•••", "•••", 2), ("•••", "•••", 1)),  # swapped
        lines(("•••", "•••", 1), ("•••", "•••", 2), ("•••", "•••", 3)),
        lines(("•••", "•••", 1), ("C", "•••", 2)),  # partly new
        {"lines": ["•••"]},
        {"lines": ["•••", "•••"]},
    ],
)
def test_in_a_changed_list_no_secret_moves_to_another_element(told: Any) -> None:
    with pytest.raises(InvalidInput, match=r"payload.lines says '•••', .* in a list that is not as it is stored"):
        restored(told, LINES, NAMES)


def test_only_the_place_of_a_secret_matters() -> None:
    told = {"note": "•••", "to": {"name": "•••", "phone": "•••"}}
    assert restored(told, {"to": {"phone": "06"}}, ("to.phone",)) == {**told, "to": {"name": "•••", "phone": "06"}}
    assert restored("•••", MISSING, ()) == "•••"
    others: tuple[Any, ...] = (MISSING, "text", {"to": "text"}, {"to": {}})
    for other in others:
        with pytest.raises(InvalidInput):
            restored(told, other, ("to.phone",))
    assert restored({"to": "•••"}, {"to": ["Anna", "06"]}, ("to.phone",)) == {"to": ["Anna", "06"]}


def test_a_shown_payload_has_the_shape_of_the_stored_one() -> None:
    assert shown({"to": [{"phone": "06"}, {}]}, ("to.phone",)) == {"to": [{"phone": "•••"}, {}]}
    assert shown({"to": ["06", {"phone": "06"}]}, ("to.phone",)) == {"to": "•••"}
    assert shown({"to": [["06"]]}, ("to.phone",)) == {"to": ["•••"]}
    assert shown({"to": None, "x": [1]}, ("to.phone",)) == {"to": None, "x": [1]}
    assert shown([1, 2], ()) == [1, 2]
