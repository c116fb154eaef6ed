"""How a process ends when something in it does not: a task, a thread, an exit handler that hangs.

What is said here is said in threads that nobody waits for longer than a moment: a log that nobody reads (a full pipe)
blocks its writer, and must not keep the process either.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

EXIT = 2.5
"""Seconds in which a process must end once its worker has left: for background tasks, threads, exit handlers."""
LEAVE = 4.5
"""Seconds after its grace in which a worker's process has ended itself: no way through `leaver.py` takes longer. Then a
supervisor kills it, so that it is gone after five."""
LAST_WORDS = 0.5
"""Seconds to write the last line of the log and to flush all of it."""

log = logging.getLogger("accoda.worker")
_before: list[Callable[[], None]] = []


def before_forced_end(function: Callable[[], None]) -> None:
    """Have this called before a process is ended by force. It must neither block nor raise."""
    _before.append(function)


def end_within(seconds: float, code: int, loop: asyncio.AbstractEventLoop | None = None) -> None:
    """The process has nothing left to do: end it with `code` if it has not ended by itself after so many seconds.

    The interpreter waits without limit for tasks of its loop, for threads, and for exit handlers. A daemon thread runs
    on during all of that.
    """

    def end() -> None:
        time.sleep(seconds)
        end_now(f"the process did not end by itself{_what_holds_it(loop)}; it was ended by force", code)

    threading.Thread(target=end, name="accoda-end", daemon=True).start()


def end_now(message: str, code: int) -> None:
    """Log the message, flush the logs, and end the process, whatever else it does."""
    for function in _before:
        function()
    within(LAST_WORDS, _last_words, message)
    os._exit(code)


def within(seconds: float, function: Callable[..., object], *args: object) -> None:
    """Call a function in a thread of its own, and go on after so many seconds if it has not returned."""
    thread = threading.Thread(target=function, args=args, daemon=True)
    with suppress(RuntimeError):  # no thread can be started any more: the interpreter is almost gone
        thread.start()
        thread.join(seconds)


def _last_words(message: str) -> None:
    log.error("%s", message)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()


def _what_holds_it(loop: asyncio.AbstractEventLoop | None) -> str:
    """The tasks and threads that are left, for the log; empty if there are none."""
    tasks = [] if loop is None or loop.is_closed() else asyncio.all_tasks(loop)
    main = threading.main_thread()
    names = [f"task {getattr(task.get_coro(), '__qualname__', task.get_name())}" for task in tasks]
    names += [f"thread {one.name}" for one in threading.enumerate() if one is not main and not one.daemon]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f" (it still has: {', '.join(names[:5])}{more})" if names else ""
