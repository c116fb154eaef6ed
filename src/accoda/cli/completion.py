"""`accoda completion`: the script for a shell, and the names of queues and the ids of flows for Tab."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from accoda.cli.draw import echo

if TYPE_CHECKING:
    from accoda.app import App

PATIENCE = 0.3
"""Seconds that the store has to list its queues: Tab must not wait longer."""

SHELLS = {
    "bash": 'eval "$(accoda completion bash)"  in ~/.bashrc',
    "zsh": 'eval "$(accoda completion zsh)"  in ~/.zshrc',
    "fish": "accoda completion fish > ~/.config/fish/completions/accoda.fish",
}


@click.command(epilog="\b\n" + "\n".join(SHELLS.values()))
@click.argument("shell", type=click.Choice(list(SHELLS)))
def completion(shell: str) -> None:
    """Print a script that completes commands, options and queues in SHELL."""
    from click.shell_completion import ShellComplete, get_completion_class

    from accoda.cli.commands import accoda

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(accoda, {}, "accoda", "_ACCODA_COMPLETE")
    echo(ShellComplete.source(script))  # bash's own would check the version of bash here; another may read it


def complete_queues(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The queues whose names begin like that, if the store answers in time; else none, without a message."""
    return _asked(ctx, incomplete, _queues)


def complete_flows(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The same for the ids of flows, of the first thousand."""
    return _asked(ctx, incomplete, _flows)


def _asked(ctx: click.Context, incomplete: str, names: Callable[[App], Awaitable[list[str]]]) -> list[str]:
    from threading import Thread

    found: list[str] = []
    words = [*ctx.meta.get("accoda.words", ()), "--url", ctx.params.get("url")]
    url = words[words.index("--url") + 1]
    # A thread that may be left behind: a store that does not answer must not keep the shell waiting, and asyncio would
    # wait for its own threads. One call adds the complete list, so no half of it is ever seen.
    asking = Thread(target=lambda: found.extend(_ask(url, ctx.params.get("app"), names)), daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return [name for name in found if name.startswith(incomplete)]


def _ask(url: str | None, app: str | None, names: Callable[[App], Awaitable[list[str]]]) -> list[str]:
    from accoda.cli.common import StoreOptions

    try:
        return StoreOptions(url, app).ask(names)
    except Exception:  # while a person types, nothing but names is printed
        return []


async def _queues(app: App) -> list[str]:
    from accoda.operations import queues

    return [queue.name for queue in await queues.list(app)]


async def _flows(app: App) -> list[str]:
    from accoda.operations import flows

    return [flow.id for flow in (await flows.page(app, limit=1000)).items]
