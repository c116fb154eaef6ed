"""What the adapters of the flows benchmark share: their command line, and the file of what members and joins noted.

    python flow_celery.py start '{"url": "redis://…", "notes": "/…/notes", "flows": 1, "members": 1000, "warm": 50}'
    python flow_celery.py work  '{"url": "redis://…", "notes": "/…/notes", "length": 0.005}'

`start` warms its producer up with flow 0, which has `warm` members, says that it is ready, waits for a line, and starts
the flows from 1 on. Each is a fan: members that call `Notes.member` (or await `member_async`) and a join after all of
them, which calls `Notes.join`. `work` runs one worker, which the benchmark ends.

A note is a line: what happened, the flow, which member or which firing of the join, and the moment by the clock that
all processes of a machine share. Lines are appended, so their order is the order in which things happened. This file
imports nothing but the standard library: it runs in the environments of all the peers.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from driving import run_loop, say

WARM_FLOW = 0


@dataclass(frozen=True)
class Order:
    """What to do. `diamond`: a node before all members, too. `at_once`: flows that are started together."""

    url: str
    notes: str
    flows: int = 1
    members: int = 1000
    length: float = 0.0  # seconds that a member takes
    warm: int = 0
    diamond: bool = False
    at_once: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0  # the harness waits that much longer for `start`
    number: int = 0  # which of the workers this is, and how many there are: always the only one
    workers: int = 1


class Notes:
    """Appends lines. One small append is whole or not there, also when the process is killed."""

    def __init__(self, order: Order) -> None:
        self._file = os.open(order.notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._length = order.length

    def member(self, flow: int, index: int) -> None:
        if self._length:
            time.sleep(self._length)
        self._note("member", flow, index)

    async def member_async(self, flow: int, index: int) -> None:
        if self._length:
            await asyncio.sleep(self._length)
        self._note("member", flow, index)

    def join(self, flow: int, firing: object = "-") -> None:
        """`firing` tells two firings of a join from one whose job was run again, where the queue can tell."""
        self._note("join", flow, firing)

    def start(self, flow: int) -> None:
        self._note("start", flow, "-")

    def _note(self, what: str, flow: int, which: object) -> None:
        os.write(self._file, f"{what} {flow} {which} {time.monotonic():.6f}\n".encode())


def main(producer: Callable[[Order], Any], work: Callable[[Order, Notes], None]) -> None:
    """Do what the command line says. `producer(order)` has `start(flow, members)`, and maybe `open()` and `get(flow)`.

    All are coroutines or none is. `get` reads a flow; the peer is Accoda then.
    """
    logging.disable(logging.WARNING)  # a line for each job would be most of what is measured
    what, text = sys.argv[1:]
    order = Order(**json.loads(text))
    if what == "work":
        work(order, Notes(order))
    else:
        made = producer(order)
        if inspect.iscoroutinefunction(made.start):
            run_loop(drive_async(what, made, order))
        else:
            drive(made, order)


def drive(producer: Any, order: Order) -> None:
    notes = Notes(order)
    if order.warm:
        producer.start(WARM_FLOW, order.warm)
    begun = wait_for_line()
    for flow in numbers(order):
        notes.start(flow)
        producer.start(flow, order.members)
    say({"seconds": time.monotonic() - begun})


async def drive_async(what: str, producer: Any, order: Order) -> None:
    notes = Notes(order)
    await producer.open()
    if order.warm:
        await producer.start(WARM_FLOW, order.warm)
    left = iter(numbers(order))

    async def some() -> None:
        for flow in left:
            if what == "get":
                await producer.get(flow)
            else:
                notes.start(flow)
                await producer.start(flow, order.members)

    begun = wait_for_line()
    await asyncio.gather(*(some() for _ in range(order.at_once)))
    say({"seconds": time.monotonic() - begun})
    await producer.close()


def numbers(order: Order) -> range:
    return range(WARM_FLOW + 1, WARM_FLOW + 1 + order.flows)


def wait_for_line() -> float:
    """Say that all is ready; the moment at which the line came that starts the run."""
    say({"ready": True})
    sys.stdin.readline()
    return time.monotonic()
