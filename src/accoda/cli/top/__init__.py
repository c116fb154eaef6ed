"""`accoda top`: the store as it is now, and keys to do something about it.

board.py      what is on the screen, and what a key makes of it: pure
view.py       from a board to the screen: pure
terminal.py   the keys, as the terminal sends them
loop.py       look, draw, press, do; again
"""

from __future__ import annotations

import click

from accoda.cli.common import StoreOptions, echo_json, is_terminal, run, store_options


@click.command()
@click.option("--every", default=1.0, type=click.FloatRange(0.2, 60), show_default=True, help="Seconds between looks.")
@click.option("--once", is_flag=True, help="Print one look and end, as without a terminal.")
@click.option("--all", "system", is_flag=True, help="Accoda's own queues too.")
@store_options
def top(store: StoreOptions, every: float, once: bool, system: bool) -> None:
    """The store as it is now: queues, rates, workers.

    Keys pause and resume a queue, replay its dead letters and show why a job waits; ? lists them. Rates are those of
    the last minutes, from the history that workers and services keep.
    """
    from accoda.cli.top import loop

    if store.as_json:
        echo_json(run(loop.look_once(store, system)).overview)
    elif once or not (is_terminal("stdin") and is_terminal("stdout")):
        loop.print_once(run(loop.look_once(store, system)))
    else:
        run(loop.watch(store, every, system))
