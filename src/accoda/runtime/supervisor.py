"""Several worker processes under one: started, watched, restarted, stopped together.

The supervisor runs no jobs. It forwards SIGTERM, starts a child that died anew, restarts all of them when code changes
(`--watch`), and shows one metrics page for all. If it is killed itself, its children notice and leave.

A child that fails before any was up would fail again: then the supervisor ends with that child's exit code. A child
that has not left in time after SIGTERM is killed.
"""

from __future__ import annotations

import logging
import math
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from msgspec import Struct

from accoda.runtime.forced_end import LEAVE

if TYPE_CHECKING:
    from accoda.runtime.metrics import SharedMetrics

SETTLED = 10.0
"""A child that lived this many seconds was started well: the next start needs no pause."""
LONGEST_PAUSE = 30.0

log = logging.getLogger("accoda.supervisor")


class SupervisorOptions(Struct, frozen=True, kw_only=True):
    """`arguments` are those of a child's command line; `grace` tells for how long it may finish its batches."""

    arguments: tuple[str, ...]
    processes: int = 1
    restart: bool = True
    watch: str | None = None
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    grace: Callable[[], float] = lambda: 30.0


class Child:
    """One worker process, and the link to it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.link: socket.socket | None = None
        self.problem = "not started"
        self.up = False
        self.started = 0.0
        self.start_at = 0.0
        self.pause = 0.0
        self.code: int | None = None

    def start(self, arguments: Sequence[str], environment: dict[str, str]) -> None:
        """Start it with one end of a pair of sockets: each side sees when the other is gone."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        command = [sys.executable, "-m", "accoda", "worker", *arguments, "--supervised", str(theirs.fileno())]
        with theirs:
            # A group of its own: Ctrl-C in a terminal reaches the supervisor alone, which then tells the children.
            self.process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env={**os.environ, **environment}, start_new_session=True
            )
        self.link, self.started, self.up = ours, time.monotonic(), False
        self.problem = f"process {self.number} is starting"

    def hear(self) -> None:
        """Take in what it says of itself once it is up: its problem, or an empty line."""
        try:
            heard = self.link.recv(65_536) if self.link is not None else b""
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        lines = heard.decode(errors="replace").splitlines()
        if lines:
            self.up = True  # it speaks when all is ready for its first take
            self.problem = lines[-1]

    def ended(self) -> bool:
        """Whether it has just ended; then its link is closed and the next start is planned."""
        if self.process is None or self.process.poll() is None:
            return False
        self.code = self.process.returncode
        self.process = None
        if self.link is not None:
            self.link.close()
            self.link = None
        lived = time.monotonic() - self.started
        self.pause = 0.0 if lived >= SETTLED else min(LONGEST_PAUSE, self.pause * 2 or 0.5)
        self.start_at = time.monotonic() + self.pause
        self.problem = f"process {self.number} ended with {self.code}"
        return True


class Supervisor:
    """Runs the children. `run_once` is one turn of its loop."""

    def __init__(self, options: SupervisorOptions) -> None:
        self.options = options
        self.children = [Child(number) for number in range(options.processes)]
        self._asked = 0
        self._told = 0
        self._kill_at = math.inf
        self._one_was_up = False
        self._failed_start: int | None = None
        self._reload = False
        self._metrics: SharedMetrics | None = None
        self._bell, self._ring = socket.socketpair()
        self._bell.setblocking(False)
        self._ring.setblocking(False)

    def run(self) -> int:
        """Until all children have left after a signal (or by themselves, in a burst); the exit code."""
        with ExitStack() as stack:
            stack.callback(self._ring.close)
            stack.callback(self._bell.close)
            stack.callback(self._end_all)
            self._listen(stack)
            self._show_metrics(stack)
            self._watch_code(stack)
            while self.run_once():
                self._sleep()
        if self._failed_start is not None:
            return self._failed_start
        # A child that SIGTERM itself ended had not begun to listen to it, and so not to work.
        fine = (0, -signal.SIGTERM) if self._asked else (0,)
        return 0 if all(child.code in fine for child in self.children) else 1

    def run_once(self) -> bool:
        """Start what should run, tell what must be told, take note of what ended. False: nothing is left."""
        for child in self.children:
            child.hear()
            self._one_was_up = self._one_was_up or child.up
            pid = child.process.pid if child.process else 0
            if child.ended():
                self._note(child, pid)
        if self._asked > self._told:
            self._told += 1
            self._signal(signal.SIGTERM)
            grace = self.options.grace() if self._told == 1 else 0.0
            self._kill_at = min(self._kill_at, time.monotonic() + grace + LEAVE)
            for child in self.children:
                if child.process is None:
                    child.code = 0  # it was to be started again, and has nothing left to finish
        elif time.monotonic() >= self._kill_at:
            # Its code holds the interpreter's lock, or it was stopped: it cannot even follow the signal.
            log.error("ending by force what has not left in time; its leases end by themselves")
            self._signal(signal.SIGKILL)
            self._kill_at = math.inf
        elif self._reload and not self._asked:
            self._reload = False
            log.info("code has changed: restarting")
            self._signal(signal.SIGTERM)
            for child in self.children:
                child.pause = 0.0
        for child in self.children:
            if child.process is None and self._wanted(child) and time.monotonic() >= child.start_at:
                child.start(self.options.arguments, self._metrics.environment if self._metrics else {})
        return any(child.process is not None or self._wanted(child) for child in self.children)

    def stop(self) -> None:
        """What a signal does: the first asks the children to finish, the second to give back what they run."""
        self._asked += 1
        self._wake()

    def readiness(self) -> tuple[bool, str]:
        """Ready when every child is."""
        problems = [child.problem for child in self.children if child.problem]
        return not problems and not self._asked, "; ".join(problems) or "stopping"

    def _wanted(self, child: Child) -> bool:
        """Whether a child that is not there should be: not after a signal, nor after a burst that ended well."""
        return not self._asked and (child.code is None or self.options.restart)

    def _note(self, child: Child, pid: int) -> None:
        if self._metrics is not None:
            self._metrics.ended(pid)
        if child.code and not (self._one_was_up or self._asked) and self.options.watch is None:
            log.error("process %d (pid %d) could not start: it ended with %s", child.number, pid, child.code)
            self._failed_start = child.code if child.code > 0 else 1
            self.stop()
            return
        if self._asked or (child.code == 0 and self.options.watch is None):
            log.info("process %d (pid %d) has left with %s", child.number, pid, child.code)
        elif child.code != 0:
            again = f"; starting another in {child.pause:g} s" if self._wanted(child) else ""
            log.error("process %d (pid %d) ended with %s%s", child.number, pid, child.code, again)

    def _signal(self, number: int) -> None:
        for child in self.children:
            if child.process is not None:
                child.process.send_signal(number)

    def _listen(self, stack: ExitStack) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, number, signal.signal(number, lambda *_: self.stop()))

    def _show_metrics(self, stack: ExitStack) -> None:
        if self.options.metrics_port is None:
            return
        from accoda.runtime.metrics import SharedMetrics, serve

        self._metrics = SharedMetrics()
        stack.callback(self._metrics.close)
        port, host = self.options.metrics_port, self.options.metrics_host
        server = stack.enter_context(serve(port, host, self._metrics.page, self.readiness))
        log.info("metrics at %s/metrics", server.url)

    def _watch_code(self, stack: ExitStack) -> None:
        if self.options.watch is None:
            return
        from accoda.runtime.reload import watch_code

        stack.callback(watch_code(self.options.watch, self._changed))

    def _changed(self) -> None:
        self._reload = True
        self._wake()

    def _wake(self) -> None:
        try:
            self._ring.send(b".")
        except OSError:
            return  # it is full of wake-ups already, or closed

    def _sleep(self) -> None:
        """Until a signal, a word from a child, its end, or the time of a start; at most a second."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._bell, selectors.EVENT_READ)
            for child in self.children:
                if child.link is not None:
                    selector.register(child.link, selectors.EVENT_READ)
            pauses = [child.start_at - time.monotonic() for child in self.children if child.process is None]
            pauses.append(self._kill_at - time.monotonic())
            ready = selector.select(min([1.0, *(max(0.02, pause) for pause in pauses)]))
        if any(key.fileobj is self._bell for key, _ in ready):
            self._bell.recv(4096)
        elif ready:
            time.sleep(0.01)  # a link that was closed shows at once, its process a moment later

    def _end_all(self) -> None:
        """Leave no child behind, whatever happened."""
        for child in self.children:
            if child.process is not None:
                child.process.kill()
                child.process.wait()
            if child.link is not None:
                child.link.close()
