"""Workers, queues and a manager in virtual time: a discrete event simulation.

Real are the rotation that gives each free processor its next queue, and all of the manager's learning and rule, from
`QueueStats` and `Heartbeat` records as the store and the workers write them. Simulated are time, the store and the
handlers: the jobs of a batch run one after another, a take with its settle costs `TURN`, and a job that arrives wakes a
sleeping queue at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Literal

from accoda.model import QueueStats, Stats
from accoda.runtime.heartbeat import Heartbeat, ProcessorState, QueueRate
from accoda.runtime.manager import Assignment, assign, limits
from accoda.runtime.manager.learning import FleetView, Known, learn, situation
from accoda.runtime.rotation import Rotation
from benchmarks.manager.workload import Arrived, Scenario, arrive

TURN = 0.002
"""Seconds that a take and a settle cost a processor."""
BEAT = 5.0
"""Seconds between two heartbeats."""
LOOK = 2.0
"""Seconds between two looks of the manager."""
DECAY = 0.98
"""What a worker's measures keep of their weight with each batch."""

Mode = Literal["round robin", "manager"]


@dataclass
class Line:
    """One queue in the store."""

    arrived: Arrived
    batch: int
    taken: int = 0
    running: int = 0
    done: int = 0
    waits: list[float] = field(default_factory=list)

    def ready(self, now: float) -> int:
        return bisect_right(self.arrived.moments, now, lo=self.taken) - self.taken

    def next_arrival(self) -> float | None:
        """When the first job that is not taken yet arrives."""
        return self.arrived.moments[self.taken] if self.taken < len(self.arrived.moments) else None

    def take(self, now: float, count: int) -> float:
        """Take jobs, note how long each waits for its own run, and say when the last is done."""
        end = now
        for index in range(self.taken, self.taken + count):
            self.waits.append(end - self.arrived.moments[index])
            end += self.arrived.lengths[index]
        self.taken += count
        self.running += count
        return end


class SimWorker:
    """A worker: the real rotation, processors that are free or busy, and what it measures."""

    def __init__(self, id: str, queues: list[str], processors: int) -> None:
        self.id = id
        self.queues = queues
        self.max_processors = processors
        self.rotation = Rotation(queues)
        self.free = processors
        self.states: dict[int, ProcessorState] = {}
        self._rates = {queue: QueueRate() for queue in queues}

    def follow(self, word: Assignment) -> None:
        self.rotation.limit({}, limits(word, self.id, self.queues, self.max_processors))

    def measure(self, queue: str, jobs: int, busy: float) -> None:
        rate = self._rates[queue]
        self._rates[queue] = QueueRate(rate.jobs * DECAY + jobs, rate.busy * DECAY + busy)

    def beat(self, now: float) -> Heartbeat:
        return Heartbeat(
            id=self.id,
            name=self.id,
            host="simulated",
            pid=0,
            started_at=0,
            beat_at=int(now * 1000),
            queues=tuple(self.queues),
            max_processors=self.max_processors,
            processors=tuple(self.states.values()),
            rates=dict(self._rates),
        )


class SimManager:
    """What `Manager` does between its reads and its write."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.last: FleetView | None = None
        self.word: Assignment | None = None
        self.changes = 0

    def look(self, look: FleetView) -> Assignment:
        self.known = learn(look, self.last, self.known)
        self.last = look
        word = assign(situation(look, self.known), self.word)
        self.changes += self.word is None or word.workers != self.word.workers
        self.word = word
        return word


class Simulation:
    """One run. Events are `(moment, number, what)`; equal moments go by number, so a run can be repeated exactly.

    It must be made and run on an event loop, which the rotation asks for; it never awaits.
    """

    def __init__(self, scenario: Scenario, seconds: float, seed: int, mode: Mode) -> None:
        self.now = 0.0
        self.manager = SimManager() if mode != "round robin" else None
        self.lines = {load.queue: Line(arrive(load, seconds, seed), load.batch) for load in scenario.loads}
        self._workers = [SimWorker(f"w{n}", list(self.lines), scenario.processors) for n in range(scenario.workers)]
        self._beats: list[Heartbeat] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self._alarms: dict[str, float] = {}

    def run(self) -> None:
        """Until every job has run."""
        self._beat()
        if self.manager is not None:
            self._at(LOOK, self._look)
        self._dispatch()
        while self._events:
            self.now, _, what = heappop(self._events)
            what()
            self._dispatch()

    def _at(self, moment: float, what: Callable[[], None]) -> None:
        self._numbers += 1
        heappush(self._events, (moment, self._numbers, what))

    def _dispatch(self) -> None:
        """Give every free processor its turn, until none finds anything; workers in turn."""
        self._wake()
        moved = True
        while moved:
            moved = False
            for worker in self._workers:
                if worker.free and (queue := worker.rotation.pick()) is not None:
                    self._turn(worker, queue)
                    moved = True
        self._set_alarms()

    def _wake(self) -> None:
        for worker in self._workers:
            asleep = worker.rotation.asleep()
            if ready := [queue for queue in asleep if self.lines[queue].ready(self.now)]:
                worker.rotation.wake(ready)

    def _set_alarms(self) -> None:
        """For each empty queue, be there when its next job arrives."""
        for queue, line in self.lines.items():
            moment = line.next_arrival()
            if moment is not None and moment > self.now and self._alarms.get(queue) != moment:
                self._alarms[queue] = moment
                self._at(moment, lambda: None)

    def _turn(self, worker: SimWorker, queue: str) -> None:
        line, begun = self.lines[queue], self.now
        got = min(line.batch, line.ready(begun))
        worker.rotation.report(queue, more=got >= line.batch, found=got > 0)
        if not got:
            worker.rotation.leave(queue)
            return
        end = line.take(begun, got) + TURN
        self._numbers += 1
        number = self._numbers
        worker.states[number] = ProcessorState(queue, got, None, int(begun * 1000))
        worker.free -= 1

        def finish() -> None:
            del worker.states[number]
            worker.free += 1
            worker.rotation.leave(queue)
            worker.measure(queue, got, end - begun)
            line.running -= got
            line.done += got

        self._at(end, finish)

    def _beat(self) -> None:
        self._beats = [worker.beat(self.now) for worker in self._workers]
        self._again(BEAT, self._beat)

    def _look(self) -> None:
        assert self.manager is not None
        counts = {
            queue: QueueStats(ready=line.ready(self.now), taken=line.running, done=line.done)
            for queue, line in self.lines.items()
        }
        word = self.manager.look(FleetView(Stats(counts), self._beats, int(self.now * 1000)))
        for worker in self._workers:
            worker.follow(word)
        self._again(LOOK, self._look)

    def _again(self, seconds: float, what: Callable[[], None]) -> None:
        if any(line.done < len(line.arrived.moments) for line in self.lines.values()):
            self._at(self.now + seconds, what)
