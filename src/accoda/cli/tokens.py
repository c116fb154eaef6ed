"""`accoda tokens`: tokens of the HTTP service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from accoda.cli.common import StoreOptions, answer_is_no, confirm, echo_json, lazily, store_options, yes_option
from accoda.cli.draw import Column, echo, now, say, table
from accoda.cli.groups import Defaulting
from accoda.cli.words import ago, read_length

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.http.security import tokens as security
    from accoda.http.security.tokens import Token
else:
    security = lazily("accoda.http.security.tokens")

SCOPES = ("read", "enqueue", "work", "admin")


@click.group(cls=Defaulting)
def tokens() -> None:
    """Tokens of the HTTP service: list, create, revoke.

    While a store has any token, its service asks for one.
    """


@tokens.command("list")
@store_options
def list_tokens(store: StoreOptions) -> None:
    """List tokens, without their secrets."""
    found = store.ask(lambda app: security.list_all(app.storage))
    if store.as_json:
        echo_json([_public(token) for token in found])
    elif not found:
        echo("There are none. Make one: accoda tokens create NAME --scope read", err=True)
    else:
        _show(found, now())


@tokens.command()
@click.argument("name")
@click.option(
    "-s", "--scope", "scopes", multiple=True, required=True, type=click.Choice(SCOPES), help="May be repeated."
)
@click.option(
    "-q", "--queue", "queues", multiple=True, metavar="QUEUE", help="Limit it to this queue. May be repeated."
)
@click.option("--expires", metavar="TIME", help="Ends after this time: 90d, 12h. Default: never.")
@store_options
def create(
    store: StoreOptions, name: str, scopes: tuple[str, ...], queues: tuple[str, ...], expires: str | None
) -> None:
    """Make a token and show it: this once, and never again.

    \b
    read     look at everything
    enqueue  create jobs
    work     take and settle jobs
    admin    all of these, and change things

    With --queue they hold for these queues alone.
    """
    lifetime = None if expires is None else read_length("expires", expires)
    moment = now()
    expires_at = None if lifetime is None else moment + round(lifetime * 1000)
    token, text = store.ask(
        lambda app: security.create(app.storage, name, scopes, now=moment, queues=queues, expires_at=expires_at),
        create=True,
    )
    if store.as_json:
        echo_json({**_public(token), "token": text})
        return
    echo(text)
    say(f"This is the only time that it is shown. Revoke it: accoda tokens revoke {token.id}", err=True)


@tokens.command()
@click.argument("id")
@yes_option
@store_options
def revoke(store: StoreOptions, id: str, yes: bool) -> None:
    """End the token with this ID. Running services notice within 5 seconds."""
    confirm(f"Revoke the token {id:.60}", yes)

    async def do(app: App) -> tuple[bool, int]:
        return await security.revoke(app.storage, id), len(await security.list_all(app.storage))

    there, left = store.ask(do)
    if store.as_json:
        echo_json({"id": id, "revoked": there})
    if not there:
        answer_is_no(f"There is no token {id:.60}. Its ID is what stands between acc_ and the next _.")
    if not store.as_json:
        say(f"The token {id} is revoked.")
    if not left:
        echo("It was the last one: a service on loopback now asks for none.", err=True)


def _show(found: list[Token], moment: int) -> None:
    columns = (
        "id",
        Column("name", cut=True),
        Column("scopes", cut=True),
        Column("queues", cut=True),
        "created",
        "last used",
        "expires",
    )
    table(
        columns,
        [
            (
                token.id,
                token.name,
                ", ".join(token.scopes),
                ", ".join(token.queues) or "all",
                ago(token.created_at, moment),
                ago(token.used_at, moment) or "never",
                "expired" if token.expired(moment) else ago(token.expires_at, moment) or "never",
            )
            for token in found
        ],
    )


def _public(token: Token) -> dict[str, Any]:
    """What may be seen of a token: all but the hash of its secret."""
    from accoda.operations.moments import rfc3339

    moments = {"createdAt": token.created_at, "lastUsedAt": token.used_at, "expiresAt": token.expires_at}
    facts = {name: rfc3339(at) for name, at in moments.items()}
    return {
        "id": token.id,
        "name": token.name,
        "scopes": list(token.scopes),
        "queues": list(token.queues) or None,
        **facts,
    }
