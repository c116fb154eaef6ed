"""Child processes, seen from the worker: how one is started, spoken to, and ended.

They are fresh interpreters, never forks of this one (which has threads), and unlike those of `multiprocessing` they do
not run the worker's main script again: one without `if __name__ == "__main__"` would start a second worker there.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.spawn import get_executable
from pathlib import Path
from typing import Any
from weakref import WeakSet

from msgspec import Struct

from accoda.errors import CannotStart, InvalidInput, ProcessDied
from accoda.limits import as_told
from accoda.runtime.forced_end import before_forced_end
from accoda.runtime.handler import Handler
from accoda.runtime.logs.setup import as_told as logs
from accoda.runtime.runners import wire

log = logging.getLogger("accoda.runners")

TICK = 0.1
"""Seconds between two looks at what else may have happened, while a child says nothing."""
START = 60.0
"""Seconds that a child may take to import the handler."""
_MAINS = ("__main__", "__mp_main__")
_all: WeakSet[ChildProcess] = WeakSet()


class Target(Struct, frozen=True):
    """Where a child finds the handler."""

    module: str
    name: str


def locate(handler: Handler[Any, Any, Any]) -> Target:
    """The name under which a child can import a handler."""
    name = getattr(handler.function, "__qualname__", handler.__name__)
    if handler.__module__ not in _MAINS and _lookup(handler.__module__, name) is handler:
        return Target(handler.__module__, name)
    for module, content in list(sys.modules.items()):  # registered elsewhere: emails = app.handler("emails")(send)
        if module not in _MAINS:
            for name, value in list(getattr(content, "__dict__", {}).items()):
                if value is handler:
                    return Target(module, name)
    if handler.__module__ in _MAINS:
        problem = "is in the script that was started, which a child process cannot import"
        advice = "move it to a module and start: accoda worker module:app"
    else:
        problem = f"is no name at the top of the module {handler.__module__}, so a child process cannot import it"
        advice = "define it there, outside of any function"
    raise InvalidInput("run_in", f"the handler {handler.__name__} {problem}; {advice}")


def _lookup(module: str, name: str) -> object:
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


class ChildProcess:
    """One child. Used by one thread at a time, but for `kill`."""

    def __init__(self, target: Target) -> None:
        self._connection, theirs = Pipe()
        home = str(Path(__file__).parents[3])
        start = f"main({theirs.fileno()}, {os.getpid()})"
        program = f"import sys; sys.path.insert(0, {home!r}); from accoda.runtime.runners.child import main; {start}"
        flags = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
        flags += [f"-W{option}" for option in sys.warnoptions]
        try:
            self._process = subprocess.Popen(
                [get_executable(), *flags, "-c", program], stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        except OSError as error:
            self._connection.close()
            raise CannotStart(f"the process could not be started: {error}") from error
        finally:
            theirs.close()
        _all.add(self)
        path = [part for part in sys.path if isinstance(part, str)]
        self._target = target
        hello = wire.Hello([part or str(Path.cwd()) for part in path], target.module, target.name, as_told(), logs())
        try:
            self.send(hello)
        except ProcessDied as died:
            raise self._cannot_start(str(died)) from died

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_until_ready(self, wanted: Callable[[], bool]) -> None:
        """Come back when it has imported the handler, or is not wanted any more."""
        limit = time.monotonic() + START
        while wanted():
            try:
                message = self.receive(TICK)
            except ProcessDied as died:  # in the import: a crash, os._exit, want of memory
                raise self._cannot_start(str(died)) from died
            if isinstance(message, wire.Ready):
                return
            if isinstance(message, wire.Broken):
                log.error("a child process failed while it was started:\n%s", message.reason)
                raise self._cannot_start(message.reason.strip().rpartition("\n")[2])
            if time.monotonic() > limit:
                raise self._cannot_start(f"it took longer than {START:g} s")

    def _cannot_start(self, why: str) -> CannotStart:
        module, name = self._target.module, self._target.name
        return CannotStart(f"a child process cannot load the handler {name} from {module}: {why}; correct the module")

    def send(self, message: wire.ToChild) -> None:
        try:
            self._connection.send_bytes(wire.encode(message))
        except OSError:
            raise self._died() from None

    def tell(self, news: wire.News) -> None:
        """Send news. If it is dead, `receive` will tell, after what it said before."""
        with suppress(OSError):
            self._connection.send_bytes(wire.encode(news))

    def receive(self, wait: float) -> wire.ToWorker | None:
        """The next message, None if there is none within `wait` seconds, `ProcessDied` if there will be none."""
        try:
            # The stream ends with the process, unless a process that the handler forked holds it open.
            if not self._connection.poll(wait) and (self.alive or not self._connection.poll(0)):
                if self.alive:
                    return None
                raise EOFError
            return wire.decode_in_worker(self._connection.recv_bytes())
        except (EOFError, OSError):
            raise self._died() from None
        except wire.Garbled as error:
            self.end()
            raise ProcessDied(f"the process was ended: what it said cannot be understood: {error}") from error

    def kill(self) -> None:
        """End it now. What it said before can still be received."""
        self._process.kill()

    def dismiss(self) -> None:
        """Tell an idle child that it is no longer needed: it ends by itself."""
        self._connection.close()

    def end(self) -> int:
        """Make sure that nothing is left of it. Gives the status with which it ended."""
        self._process.kill()
        self._connection.close()
        return self._process.wait()

    def _died(self) -> ProcessDied:
        try:
            status = self._process.wait(1.0)
        except subprocess.TimeoutExpired:  # it lives, but does not listen any more
            status = self.end()
        self._connection.close()
        return ProcessDied(f"the process died: {explain(status)}")


def explain(status: int) -> str:
    """The way in which a process ended.

    >>> explain(3)
    'it ended with status 3'
    >>> explain(-11)
    'signal 11 (SIGSEGV)'
    """
    if status >= 0:
        return f"it ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "unknown"
    hint = ", perhaps for want of memory" if name == "SIGKILL" else ""
    return f"signal {-status} ({name}){hint}"


def _kill_all() -> None:
    # A child ends when its worker is gone, unless it is stopped or its handler holds the interpreter's lock.
    for child in list(_all):
        child.kill()


before_forced_end(_kill_all)
