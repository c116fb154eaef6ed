"""`--watch`: tell when Python code under a folder changes. For development."""

from __future__ import annotations

import threading
from collections.abc import Callable

from accoda.errors import MissingDriver


def watch_code(folder: str, changed: Callable[[], None]) -> Callable[[], None]:
    """Call `changed` from a thread whenever code changes; gives what ends the watching."""
    try:
        from watchfiles import PythonFilter, watch
    except ModuleNotFoundError as error:
        raise MissingDriver("--watch needs watchfiles; install it with: pip install 'accoda[cli]'") from error
    ended = threading.Event()

    def look() -> None:
        for _ in watch(folder, watch_filter=PythonFilter(), stop_event=ended, debounce=400):
            changed()

    thread = threading.Thread(target=look, name="accoda-watch", daemon=True)
    thread.start()

    def end() -> None:
        ended.set()
        thread.join()

    return end
