"""Worker processes on one store, started together, watched from outside, and what a drain by them took."""

from __future__ import annotations

import json
import mmap
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from benchmarks.scale.places import Place
from benchmarks.scale.processes import run_module
from benchmarks.scale.usage import each_processor_seconds, grown, processor_seconds, resident_bytes, thread_seconds
from benchmarks.scale.worker import CELL, Order

WARM = 5
"""The clock starts when one fifth of the jobs has run: by then all have connected and have as much in hand as later."""
PATIENCE = 600.0


@dataclass(frozen=True)
class Used:
    """Processor seconds so far: of the workers' own code, and of the store: SQLite's writing threads, or a server."""

    client: float
    writing: float
    servers: dict[int, float]

    def since(self, before: Used) -> tuple[float, float]:
        """What was used in between: by the workers, by the store."""
        return self.client - before.client, self.writing - before.writing + grown(before.servers, self.servers)


class Crew:
    """So many workers. Used with `with`; ready when it is entered."""

    def __init__(self, place: Place, order: Order, processes: int) -> None:
        self._place = place
        self._file = tempfile.NamedTemporaryFile(prefix="accoda-cells-")  # noqa: SIM115 - closed by __exit__
        self._file.write(bytes(CELL * processes))
        self._file.flush()
        self._map = mmap.mmap(self._file.fileno(), 0)
        self._cells = memoryview(self._map).cast("Q")
        self._orders = [replace(order, cells=self._file.name, cell=number) for number in range(processes)]
        self._processes: list[subprocess.Popen[str]] = []
        self._writers: list[tuple[int, list[int]]] = []

    def __enter__(self) -> Self:
        try:
            for order in self._orders:
                self._processes.append(run_module("worker", json.dumps(asdict(order)), stdin=subprocess.PIPE))
            for process in self._processes:
                told = json.loads(_line(process))
                self._writers.append((told["pid"], told["writers"]))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        self._cells.release()
        self._map.close()
        self._file.close()

    @property
    def ran(self) -> int:
        return sum(self._cells)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def used(self) -> Used:
        writing = sum(thread_seconds(pid, threads) for pid, threads in self._writers)
        return Used(processor_seconds(self.pids) - writing, writing, each_processor_seconds(self._place.servers()))

    def memory(self) -> int:
        return resident_bytes(self.pids)

    def wait_for(self, count: int, look: Callable[[], None] = lambda: None) -> None:
        """Until so many jobs have run, looked at each millisecond."""
        end, before = time.monotonic() + PATIENCE, -1
        while self.ran < count:
            time.sleep(0.001)
            look()
            if self.ran != before:
                before, end = self.ran, time.monotonic() + PATIENCE
            elif time.monotonic() > end or any(process.poll() is not None for process in self._processes):
                raise RuntimeError(
                    f"{self.ran:,} of {count:,} jobs ran, then nothing more: see what a worker wrote above"
                )

    def stop(self) -> list[dict[str, Any]]:
        """End them in peace, and what each told: `ran`, `late`."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        told = [json.loads(_line(process)) for process in self._processes]
        for process in self._processes:
            process.wait(30)
        return told


@dataclass(frozen=True)
class Drained:
    """How fast the crew worked between a fifth of the jobs and the last, and the seconds of processor for each job.

    `nodes` are those of each process of the server: of each master of a Cluster.
    """

    processes: int
    count: int
    rate: float
    client: float
    server: float
    memory: int
    nodes: list[float]


def drain(crew: Crew, count: int, go: Callable[[], None]) -> Drained:
    """`go` opens the queue that `count` jobs wait in; then watch them go."""
    go()
    warm = count // WARM
    crew.wait_for(warm)
    begun, first, before = time.perf_counter(), crew.ran, crew.used()
    crew.wait_for(count)
    seconds, after = time.perf_counter() - begun, crew.used()
    many, (client, server) = max(1, count - first), after.since(before)  # very few may all be run at the first look
    return Drained(
        len(crew.pids),
        count,
        many / seconds,
        client / many,
        server / many,
        crew.memory(),
        [(after.servers[pid] - seconds) / many for pid, seconds in before.servers.items() if pid in after.servers],
    )


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(
            f"process {process.pid} of the benchmark ended with {process.wait()}: see what it wrote above"
        )
    return line
