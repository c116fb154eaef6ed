"""`accoda top`: the store as it is now, and keys to act on it.

board.py      what is on the screen, and what a key does to it: pure
view.py       from a board to the screen: pure
terminal.py   the keys, as the terminal sends them
loop.py       read, draw, press, act; again
"""

from __future__ import annotations

import click

from accoda.cli.common import StoreOptions, echo_json, store_options
from accoda.cli.draw import is_terminal


@click.command()
@click.option(
    "--every", default=1.0, type=click.FloatRange(0.2, 60), show_default=True, help="Seconds from one to the next."
)
@click.option("--once", is_flag=True, help="Print once and end, as without a terminal.")
@click.option("--all", "system", is_flag=True, help="System queues too.")
@store_options
def top(store: StoreOptions, every: float, once: bool, system: bool) -> None:
    """The store as it is now: queues, rates, workers.

    Keys pause and resume a queue, replay its dead letters and show why a job waits; ? lists them. Rates are over the
    last minute, from the history that workers and services record.
    """
    from accoda.cli.top import loop

    if store.as_json:
        echo_json(store.ask(lambda app: loop.read(app, system)).overview)
    elif once or not (is_terminal("stdin") and is_terminal("stdout")):
        loop.print_once(store.ask(lambda app: loop.read(app, system)))
    else:
        store.ask(lambda app: loop.watch(app, every, system))
