"""`accoda webhooks`: the delivery log, the key that signs, and a message to try a receiver with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from accoda.cli.common import StoreOptions, answer_is_no, confirm, echo_json, store_options, yes_option
from accoda.cli.draw import Column, card, echo, json_text, now, say, table
from accoda.cli.groups import Defaulting
from accoda.cli.jobs import StateChoice
from accoda.cli.words import ago, stamp
from accoda.operations.words import length, state_word

if TYPE_CHECKING:
    from accoda.model import State
    from accoda.webhooks.decide import Attempt
    from accoda.webhooks.keys import Keys
    from accoda.webhooks.log import Delivery

COUNTS = (Column("status", right=True), Column("tries", right=True))
COLUMNS = ("id", "state", *COUNTS, "event", Column("url", cut=True), "when")


@click.group(cls=Defaulting)
def webhooks() -> None:
    """Calls when jobs are done or dead: the delivery log, and the key that signs.

    Without a command: list.
    """


@webhooks.command("list")
@click.option("--state", type=StateChoice(), metavar="STATE", help="Only these; delayed ones failed and will retry.")
@click.option("--before", type=int, metavar="ID", help="Only calls before this one: the next page.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@store_options
def list_calls(store: StoreOptions, state: State | None, before: int | None, limit: int) -> None:
    """What was sent where and what came back, the newest first."""
    from accoda.webhooks.log import deliveries

    found = store.ask(lambda app: deliveries(app.storage, state=state, before=before, limit=limit))
    if store.as_json:
        echo_json(found)
        return
    if not found:
        echo("No calls." if state is None and before is None else "No such calls.")
        return
    table(COLUMNS, [_row(one) for one in found])
    if len(found) == limit:
        echo(f"Older ones: accoda webhooks --before {found[-1].id}")


@webhooks.command("show")
@click.argument("id", type=int)
@store_options
def show_call(store: StoreOptions, id: int) -> None:
    """All that is known of one call, and the message that it sends."""
    from accoda.webhooks.log import find

    found, message = store.ask(lambda app: find(app.storage, id))
    if store.as_json:
        import msgspec

        echo_json({"delivery": found, "message": None if message is None else msgspec.Raw(message)})
        return
    card(f"Call {found.id}", _facts(found))
    if message is not None:
        echo()
        echo(json_text(message))


@webhooks.command("redeliver")
@click.argument("id", type=int)
@store_options
def redeliver_call(store: StoreOptions, id: int) -> None:
    """Send a call again, now. The message has the same id, so a receiver that has it already can drop it."""
    from accoda.webhooks.log import redeliver

    sent = store.ask(lambda app: redeliver(app.storage, id))
    if store.as_json:
        echo_json({"id": sent})
    else:
        echo(f"Call {id} is sent again{'' if sent == id else f', as call {sent}'}.")


@webhooks.command("secret")
@click.option("--rotate", is_flag=True, help="Make a new key. The old one signs too, for a day.")
@yes_option
@store_options
def secret_key(store: StoreOptions, rotate: bool, yes: bool) -> None:
    """Show the key by which receivers check who sent a message; keep it secret."""
    from accoda.webhooks import keys as signing

    if rotate:
        confirm("Make a new key, and let the old one sign for one day more", yes)
    keys = store.ask(lambda app: (signing.rotate if rotate else signing.show)(app.storage, now()))
    if store.as_json:
        echo_json({"key": keys.current, "since": _text(keys.since), "previous": _previous(keys)})
        return
    echo(keys.current)
    for old in keys.previous:
        if old.until > now():
            echo(f"An old key signs too, until {stamp(old.until)}.", err=True)


@webhooks.command("test")
@click.argument("url_to_call", metavar="URL")
@store_options
def send_test(store: StoreOptions, url_to_call: str) -> None:
    """Sign and send one test message, and say what came back. Ends with 1 if it was not delivered."""
    from accoda.webhooks.decide import why
    from accoda.webhooks.sender_loop import SenderLoop

    attempt = store.ask(lambda app: SenderLoop().send_test(app.storage, url_to_call))
    if store.as_json:
        echo_json({"delivered": attempt.delivered, **_attempt(attempt)})
    elif attempt.delivered:
        say(f"Delivered: HTTP {attempt.status} in {attempt.ms} ms. {attempt.text}".rstrip())
    else:
        answer_is_no(f"Not delivered: {why(attempt)}")
    if not attempt.delivered:
        raise click.exceptions.Exit(1)


def _row(one: Delivery) -> tuple[object, ...]:
    return (one.id, state_word(one.state), one.status, one.tries, one.event, one.url, _when(one))


def _when(one: Delivery) -> str:
    """When it is tried again, or how long ago it ended or began."""
    return ago(one.next_at or one.ended_at or one.created_at, now())


def _facts(one: Delivery) -> list[tuple[str, object]]:
    return [
        ("state", state_word(one.state)),
        ("url", one.url),
        ("event", one.event),
        ("message id", one.message),
        ("job", None if one.job is None else f"{one.job} of {one.queue}"),
        ("tries", one.tries),
        ("status", one.status),
        ("took", None if one.ms is None else length(one.ms / 1000)),
        ("answer", one.answer),
        ("reason", one.reason),
        ("created", stamp(one.created_at)),
        ("next try", None if one.next_at is None else f"{stamp(one.next_at)} ({ago(one.next_at, now())})"),
        ("ended", None if one.ended_at is None else stamp(one.ended_at)),
    ]


def _attempt(attempt: Attempt) -> dict[str, Any]:
    from accoda.webhooks.decide import why

    answer = {} if attempt.status is None else {"ms": attempt.ms, "answer": attempt.text}
    return {"status": attempt.status, **answer, **({} if attempt.delivered else {"reason": why(attempt)})}


def _previous(keys: Keys) -> list[dict[str, str]]:
    return [{"key": old.key, "until": _text(old.until)} for old in keys.previous if old.until > now()]


def _text(moment: int) -> str:
    from accoda.operations.moments import rfc3339

    return rfc3339(moment)
