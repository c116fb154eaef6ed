"""Drives a peer's producer by the clock: the same calls in the same rhythm for all peers, sync or async.

A producer answers with two lines of JSON: `{"ready": true}` when it is warm, then, once a line came by the standard
input, what it did: `{"count": 5000, "seconds": 1.0, "cpu": 0.7, "callers": ""}`. Where the peer has no such call it
says `{"none": true}` at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from tally import PAYLOAD, Order

CHUNK = 1000  # payloads in a bulk call
TASKS = 100  # concurrent callers of an async producer
THREADS = 16  # of a sync one
WARM = {"enqueue": 100, "callers": 100, "bulk": CHUNK, "latency": 5, "delayed": 5}  # jobs before the clock starts
GAP = (0.03, 0.06)  # seconds between two jobs of the latency run
DUE = (1.5, 4.5)  # seconds from now, between which the delayed jobs become due
SETTLE = 0.5  # seconds of quiet between the warm-up and the first job whose lateness counts


def drive(what: str, make: Callable[[Order], Any] | None, order: Order) -> None:
    """Make the producer and let it do what the measure wants."""
    producer: Any = make(order) if make is not None else None
    if not hasattr(producer, NEEDS[what]):
        say({"none": True})
    elif inspect.iscoroutinefunction(producer.one):
        run_loop(drive_async(what, producer, order))
    else:
        drive_sync(what, producer, order)


def run_loop(coroutine: Any) -> None:
    """On uvloop where the environment has it."""
    try:
        import uvloop  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        asyncio.run(coroutine)
    else:
        uvloop.run(coroutine)


def say(what: dict[str, Any]) -> None:
    os.write(1, f"{json.dumps(what)}\n".encode())  # some libraries replace sys.stdout


# ---- what both kinds of producer share


NEEDS = {"enqueue": "one", "callers": "one", "bulk": "many", "latency": "one", "delayed": "later"}


class Clock:
    """The time and the processor time between the line that starts a run and its end."""

    def __enter__(self) -> Clock:
        say({"ready": True})
        sys.stdin.readline()
        self._cpu, self._began = time.process_time(), time.perf_counter()
        return self

    def within(self, order: Order) -> float:
        """The moment at which to stop."""
        return self._began + order.seconds if order.seconds else float("inf")

    def __exit__(self, *error: object) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu = time.process_time() - self._cpu

    def report(self, count: int, callers: str = "") -> None:
        say({"count": count, "seconds": self.seconds, "cpu": self.cpu, "callers": callers})


def gaps(count: int) -> Iterator[float]:
    """The waits between jobs of a latency run: the same for all."""
    chance = random.Random(1)
    return (chance.uniform(*GAP) for _ in range(count))


def dues(count: int) -> Iterator[float]:
    """Seconds from now at which the delayed jobs become due: spread out, in a mixed order, the same for all."""
    low, high = DUE
    moments = [low + (high - low) * index / max(1, count - 1) for index in range(count)]
    random.Random(1).shuffle(moments)
    return iter(moments)


def chunks(count: int) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, count, CHUNK):
        yield [PAYLOAD] * min(CHUNK, count - start)


# ---- sync


def drive_sync(what: str, producer: Any, order: Order) -> None:
    if what == "bulk":
        producer.many([PAYLOAD] * WARM[what])
    else:
        for _ in range(WARM[what]):
            producer.one(PAYLOAD)
    RUNS[what](producer, order)
    if hasattr(producer, "close"):
        producer.close()


def enqueue(producer: Any, order: Order) -> None:
    with Clock() as clock:
        done = calls(producer.one, order.count, clock.within(order))
    clock.report(done)


def calls(one: Callable[[dict[str, Any]], Any], count: int, end: float) -> int:
    done = 0
    while done < count and time.perf_counter() < end:
        one(PAYLOAD)
        done += 1
    return done


def callers(producer: Any, order: Order) -> None:
    share = order.count // THREADS
    done: list[int] = []
    with Clock() as clock:
        end = clock.within(order)
        crowd = [threading.Thread(target=lambda: done.append(calls(producer.one, share, end))) for _ in range(THREADS)]
        for each in crowd:
            each.start()
        for each in crowd:
            each.join()
    if len(done) < THREADS:
        raise RuntimeError(f"{THREADS - len(done)} of {THREADS} calling threads failed")
    clock.report(sum(done), f"{THREADS} threads")


def bulk(producer: Any, order: Order) -> None:
    done = 0
    with Clock() as clock:
        for payloads in chunks(order.count):
            producer.many(payloads)
            done += len(payloads)
            if time.perf_counter() >= clock.within(order):
                break
    clock.report(done)


def latency(producer: Any, order: Order) -> None:
    with Clock() as clock:
        time.sleep(SETTLE)
        for index, gap in enumerate(gaps(order.count)):
            time.sleep(gap)
            producer.one({**PAYLOAD, "index": index, "sent": time.time()})
    clock.report(order.count)


def delayed(producer: Any, order: Order) -> None:
    with Clock() as clock:
        start = time.time()
        for index, due in enumerate(dues(order.count)):
            now = time.time()
            producer.later({**PAYLOAD, "index": index, "due": start + due}, start + due - now)
    clock.report(order.count)


# ---- async


async def drive_async(what: str, producer: Any, order: Order) -> None:
    if hasattr(producer, "open"):
        await producer.open()
    if what == "bulk":
        await producer.many([PAYLOAD] * WARM[what])
    elif what == "callers":
        await asyncio.gather(*(producer.one(PAYLOAD) for _ in range(WARM[what])))
    else:
        for _ in range(WARM[what]):
            await producer.one(PAYLOAD)
    await ASYNC_RUNS[what](producer, order)
    if hasattr(producer, "close"):
        with contextlib.suppress(asyncio.CancelledError):
            await producer.close()


async def enqueue_async(producer: Any, order: Order) -> None:
    with Clock() as clock:
        done = await calls_async(producer.one, order.count, clock.within(order))
    clock.report(done)


async def calls_async(one: Callable[[dict[str, Any]], Awaitable[Any]], count: int, end: float) -> int:
    done = 0
    while done < count and time.perf_counter() < end:
        await one(PAYLOAD)
        done += 1
    return done


async def callers_async(producer: Any, order: Order) -> None:
    share = order.count // TASKS
    with Clock() as clock:
        end = clock.within(order)
        done = await asyncio.gather(*(calls_async(producer.one, share, end) for _ in range(TASKS)))
    clock.report(sum(done), f"{TASKS} coroutines")


async def bulk_async(producer: Any, order: Order) -> None:
    done = 0
    with Clock() as clock:
        for payloads in chunks(order.count):
            await producer.many(payloads)
            done += len(payloads)
            if time.perf_counter() >= clock.within(order):
                break
    clock.report(done)


async def latency_async(producer: Any, order: Order) -> None:
    with Clock() as clock:
        await asyncio.sleep(SETTLE)
        for index, gap in enumerate(gaps(order.count)):
            await asyncio.sleep(gap)
            await producer.one({**PAYLOAD, "index": index, "sent": time.time()})
    clock.report(order.count)


async def delayed_async(producer: Any, order: Order) -> None:
    with Clock() as clock:
        start = time.time()
        for index, due in enumerate(dues(order.count)):
            now = time.time()
            await producer.later({**PAYLOAD, "index": index, "due": start + due}, start + due - now)
    clock.report(order.count)


RUNS: dict[str, Callable[[Any, Order], None]] = {
    "enqueue": enqueue,
    "callers": callers,
    "bulk": bulk,
    "latency": latency,
    "delayed": delayed,
}
ASYNC_RUNS: dict[str, Callable[[Any, Order], Awaitable[None]]] = {
    "enqueue": enqueue_async,
    "callers": callers_async,
    "bulk": bulk_async,
    "latency": latency_async,
    "delayed": delayed_async,
}
