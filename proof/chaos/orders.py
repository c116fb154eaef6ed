"""In a worker process: what the harness has ordered it to do to itself, and at which point.

An order is a line of JSON on the process's standard input. Production code knows nothing of it: the points lie in the
store that wraps the recorded one (`points.py`) and in the middleware around the handlers (`app.py`).
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import sys
import threading
import time
from typing import Literal, NoReturn

import msgspec

from proof.checker import Recorder

Point = Literal["after take", "in handler", "after handler", "before settle", "inside commit"]
POINTS: tuple[Point, ...] = ("after take", "in handler", "after handler", "before settle", "inside commit")
INSIDE = 0.004
"""Seconds from the start of a call within which a kill strikes "inside commit": sent, carried out, not answered."""


class Order(msgspec.Struct, frozen=True):
    """`die` at a point; `stop` (SIGSTOP) or hold the `gil` for some seconds, both in a handler."""

    do: Literal["die", "stop", "gil"]
    point: Point = "in handler"
    seconds: float = 0.0


class Orders:
    """The orders that wait for their point to be reached. Used by every thread of the process."""

    def __init__(self, recorder: Recorder, client: str) -> None:
        self._recorder = recorder
        self._client = client
        self._waiting: list[Order] = []
        self._lock = threading.Lock()

    def listen(self) -> None:
        """Follow standard input from now on, in a thread of its own."""
        threading.Thread(target=self._read, name="chaos-orders", daemon=True).start()

    def give(self, order: Order) -> None:
        with self._lock:
            self._waiting.append(order)

    def due(self, point: Point) -> Order | None:
        """The order for this point, given to exactly one caller."""
        if not self._waiting:  # nearly always; one that arrives in this moment is met at the next point
            return None
        with self._lock:
            for order in self._waiting:
                if order.point == point:
                    self._waiting.remove(order)
                    return order
        return None

    def reach(self, point: Point) -> None:
        """Die here if that was ordered."""
        if self.due(point) is not None:
            self.die(point)

    def die(self, how: str) -> NoReturn:
        """kill -9 by one's own hand; the note is in the file before."""
        self._recorder.note("kill", client=self._client, how=how)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable: SIGKILL cannot be caught")

    def die_soon(self, how: str) -> None:
        """kill -9 from another thread within the next few milliseconds, while the caller goes on with its call."""
        self._recorder.note("kill", client=self._client, how=how)

        def kill() -> None:
            time.sleep(random.uniform(0, INSIDE))
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=kill, name="chaos-kill", daemon=True).start()

    def obey(self, order: Order) -> None:
        """What is ordered to be done in a handler."""
        if order.do == "die":
            self.die(order.point)
        self._recorder.note(order.do, client=self._client, seconds=order.seconds)
        if order.do == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            hold_gil(order.seconds)
        self._recorder.note(f"{order.do} over", client=self._client)

    def _read(self) -> None:
        # Not sys.stdin: its buffer would be locked by this thread when the process ends in the usual way.
        with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as lines:
            for line in iter(lines.readline, b""):
                self.give(msgspec.json.decode(line, type=Order))
        os._exit(1)  # the harness is gone: nothing else would end this process


def hold_gil(seconds: float) -> None:
    """Sleep in C without letting other threads of this process run: the keeper of leases stops, too."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
