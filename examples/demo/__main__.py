"""`python -m examples.demo`: on a terminal until Ctrl-C, elsewhere for 20 seconds. DEMO_SECONDS sets another length."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from accoda.clock import SystemClock
from accoda.errors import AccodaError, InvalidInput
from accoda.storage.open import open_storage

try:
    from rich.console import Console
    from rich.live import Live
except ModuleNotFoundError:  # rich is an extra: say which one, not where the import failed
    sys.exit("examples.demo: needs rich; install it with: pip install 'accoda[cli]'")

from examples.demo.run import Demo, Interrupts, run_demo
from examples.demo.service import service
from examples.demo.snapshot import Snapshot
from examples.demo.summary import summary
from examples.demo.view import board, progress_line

WITHOUT_TERMINAL = 20.0
START = """\
Accoda demo on SQLite: one producer, three workers, one of which crashes, and
many requests for deals to an API that counts every call.
Dashboard: {address}/    (API: {address}/docs)
While it runs, in another terminal:
  curl {address}/api/v1/queues
  curl {address}/api/v1/jobs -H 'Content-Type: application/json' \\
    -d '{{"queue": "hello", "payload": "Anna"}}'
"""
LONGEST = 86_400.0
Show = Callable[[Snapshot], None]


def seconds_to_run(environment: Mapping[str, str], *, terminal: bool) -> float | None:
    """How long to run; None: until interrupted."""
    text = environment.get("DEMO_SECONDS", "").strip()
    if not text:
        return None if terminal else WITHOUT_TERMINAL
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST:  # also refuses nan
        raise InvalidInput("DEMO_SECONDS", f"must be a number of seconds above 0 and up to {LONGEST:.0f}, not {text!r}")
    return seconds


class DemoConsole(Console):
    """A console whose reader may go away (`| head`): an ordinary error instead of rich ending the program."""

    def on_broken_pipe(self) -> None:
        with suppress(SystemExit):
            super().on_broken_pipe()
        raise BrokenPipeError


@contextmanager
def open_view(console: Console, address: str, *, live: bool) -> Iterator[Show]:
    """A function that draws each snapshot: on the whole screen, or line by line."""
    if not live:
        yield lambda snapshot: console.print(progress_line(snapshot), highlight=False)
        return
    # The alternate screen survives a resize and leaves the terminal as it was. No thread: our own loop draws it.
    with Live(console=console, screen=True, auto_refresh=False) as screen:
        yield lambda snapshot: screen.update(board(snapshot, *console.size, address), refresh=True)


@contextmanager
def catch_signals(interrupts: Interrupts) -> Iterator[None]:
    """Turn signals that end a program into a graceful stop while there is a folder to clean up."""
    loop = asyncio.get_running_loop()
    names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {
        name: signal.signal(getattr(signal, name), lambda *_: loop.call_soon_threadsafe(interrupts.interrupt))
        for name in names
    }
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


async def demo(console: Console, seconds: float | None, *, live: bool) -> int:
    """Run the demo in a folder of its own; the exit code."""
    clock, interrupts = SystemClock(), Interrupts()
    every = 0.25 if live else min(4.0, (seconds or 4.0) / 2)
    with catch_signals(interrupts), tempfile.TemporaryDirectory(prefix="accoda-demo-") as folder:
        url = f"sqlite:///{Path(folder, 'jobs.db').as_posix()}"
        started = clock.now()
        async with await open_storage(url, clock=clock) as storage, service(url) as address:
            if not live:
                console.print(START.format(address=address.url), highlight=False, soft_wrap=True)
            with open_view(console, address.url, live=live) as show:
                totals = await run_demo(Demo(storage, clock), show, every, seconds, interrupts)
        elapsed = (clock.now() - started) / 1000
    console.print(summary(totals, elapsed, where="SQLite", changes=address.changes), highlight=False)
    return 1 if totals.problems() and not address.changes else 0


def main() -> int:
    """Read the settings, run, and turn every expected error into one line."""
    with suppress(AttributeError):
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # "?" instead of a bar is better than a traceback
    # Jobs of the demo fail on purpose: the dashboard shows it, the terminal should not.
    logging.getLogger("accoda").addHandler(logging.NullHandler())
    console = DemoConsole()
    # Not `console.is_terminal`: that trusts FORCE_COLOR, and a CI build that sets it would never end.
    terminal = console.file.isatty() and sys.stdin is not None and sys.stdin.isatty()
    try:
        seconds = seconds_to_run(os.environ, terminal=terminal)
    except InvalidInput as error:
        sys.stderr.write(f"examples.demo: {error}\n")
        return 2
    code = 1
    try:
        code = asyncio.run(demo(console, seconds, live=terminal and not console.is_dumb_terminal))
    except* BrokenPipeError:
        pass  # the reader is gone
    except* (AccodaError, OSError) as group:
        sys.stderr.write(f"examples.demo: {group.exceptions[0]}\n")
    except* KeyboardInterrupt:  # before or after our signal handlers: there is no folder then
        code = 0
    return code


if __name__ == "__main__":
    sys.exit(main())
