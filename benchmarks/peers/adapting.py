"""Runs adapters, each step in a process of its own: fill a store, work it off, put jobs in by the clock."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.environments import clean_environment, command_of
from benchmarks.peers.peer import Peer

FILL_PATIENCE = 120.0
START_PATIENCE = 60.0  # until the first job has run, or a producer is ready
STALL_PATIENCE = 20.0  # without a single job between two looks
PRODUCE_PATIENCE = 60.0
POLL = 0.001
FAR = 5  # times as long between two looks while the end is far


class AdapterFailed(Exception):
    """An adapter ended without an answer, or gave none in time; says what it wrote last."""


Ask = dict[str, Any]  # an order as JSON will have it; the fields are those of tally.Order


def fill(peer: Peer, ask: Ask) -> None:
    """Make the store ready and put `ask["count"]` jobs in."""
    with tempfile.TemporaryFile() as said:
        try:
            done = subprocess.run(
                [*command_of(peer.adapter, peer.script), "fill", json.dumps(ask)],
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=FILL_PATIENCE,
                env=clean_environment(peer.adapter),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise AdapterFailed(f"enqueueing {ask['count']:,} jobs took more than {FILL_PATIENCE:.0f} s") from None
        if done.returncode:
            raise AdapterFailed(f"enqueueing failed: {_tail(said.fileno())}")


@dataclass(frozen=True)
class Reached:
    """A number of runs, and the moment by `time.perf_counter` at which it was seen."""

    count: int
    at: float


@dataclass(frozen=True)
class Crew:
    """Workers under way."""

    processes: Sequence[subprocess.Popen[bytes]]
    said: int  # the file with all that they wrote

    @property
    def leaders(self) -> list[int]:
        """Each worker is the first process of a session of its own."""
        return [process.pid for process in self.processes]

    def wait_for(self, count: int, counted: Callable[[], int], patience: float = STALL_PATIENCE) -> Reached:
        """Return when so many jobs have run, or a few more."""
        seen, looked = counted(), 0
        end = time.monotonic() + (patience if seen else max(patience, START_PATIENCE))
        while seen < count:
            # Looking costs a little of a core: it is done often only when it matters.
            time.sleep(POLL if seen > 0.8 * count else FAR * POLL)
            now = counted()
            if now != seen:
                seen, end = now, time.monotonic() + patience
            looked += 1
            if looked % 20 == 0 and seen < count:
                self._check(seen, count, counted, end)
        return Reached(seen, time.perf_counter())

    def _check(self, seen: int, count: int, counted: Callable[[], int], end: float) -> None:
        codes = [process.poll() for process in self.processes]
        # A worker may end by itself when the store is empty, and the other still have jobs in hand.
        ended = any(code not in (None, 0) for code in codes) or all(code == 0 for code in codes)
        if ended and counted() < count:
            raise AdapterFailed(f"the worker ended early, {counted():,} of {count:,} jobs had run: {self.tail()}")
        if time.monotonic() > end:
            what = f"ran {seen:,} of {count:,} jobs and then none" if seen else "ran no job"
            raise AdapterFailed(f"{what} for {STALL_PATIENCE if seen else START_PATIENCE:.0f} s: {self.tail()}")

    def tail(self) -> str:
        return _tail(self.said)


@contextlib.contextmanager
def start_workers(peer: Peer, ask: Ask, workers: int = 1) -> Iterator[Crew]:
    """Start them, and end them in the end with all their children."""
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryFile() as said:
        try:
            for number in range(workers):
                order = json.dumps({**ask, "number": number, "workers": workers})
                processes.append(
                    subprocess.Popen(
                        [*command_of(peer.adapter, peer.script), "work", order],
                        stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                        start_new_session=True, env=clean_environment(peer.adapter),
                    )
                )  # fmt: skip
            yield Crew(processes, said.fileno())
        finally:
            for process in processes:
                # Its session is its own: the group holds the worker and whatever it forked, and nothing else.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def produce(peer: Peer, what: str, ask: Ask, ready: Callable[[], None]) -> dict[str, Any] | None:
    """Let the peer's producer put jobs in. `ready` is called when it is warm, just before it starts.

    What it says of it, or None where the peer has no such call.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*command_of(peer.adapter, peer.script), what, json.dumps(ask)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, start_new_session=True,
            env=clean_environment(peer.adapter),
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            said_lines = _lines(process.stdout.fileno())
            first = _next(said_lines, START_PATIENCE, "was not ready", said.fileno())
            if first.get("none"):
                return None
            ready()
            process.stdin.write(b"\n")
            process.stdin.flush()
            return _next(said_lines, PRODUCE_PATIENCE + ask.get("seconds", 0.0), "did not finish", said.fileno())
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdin.close()
            process.stdout.close()


def _next(lines: Iterator[bytes | None], patience: float, words: str, said: int) -> dict[str, Any]:
    """The next line that is a JSON object; whatever else is printed is passed over."""
    end = time.monotonic() + patience
    for line in lines:
        if line is not None and line.startswith(b"{"):
            found: dict[str, Any] = json.loads(line)
            return found
        if time.monotonic() > end:
            raise AdapterFailed(f"the producer {words} in {patience:.0f} s: {_tail(said)}")
    raise AdapterFailed(f"the producer ended early: {_tail(said)}")


def _lines(source: int) -> Iterator[bytes | None]:
    """The lines as they come, until the other side is closed; None once in a while when there is none."""
    seen = b""
    while True:
        if not select.select([source], [], [], 0.5)[0]:
            yield None
            continue
        part = os.read(source, 65536)
        if not part:
            return
        *lines, seen = (seen + part).split(b"\n")
        yield from lines


def _tail(file: int) -> str:
    """The last line that says something of what an adapter wrote."""
    text = os.pread(file, 1_000_000, max(0, os.fstat(file).st_size - 100_000)).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it wrote nothing"
