"""A stage for one job: an app on any storage with a clock that stands still, and heartbeats without workers."""

from typing import Any

import msgspec

from accoda import App, Done, Job, ManualClock, Observation
from accoda.operations.why import Explanation
from accoda.runtime.heartbeat import PREFIX, Heartbeat, ProcessorState, QueueRate, encode
from accoda.runtime.manager.manager import ASSIGNMENT
from accoda.runtime.manager.rule import Assignment

BUSY = "busy"


class Stage:
    """One test's world. It has a `queue` of its own, so that tests may share a server."""

    def __init__(self, app: App, clock: ManualClock, queue: str) -> None:
        self.app, self.clock, self.queue = app, clock, queue
        self._documents: set[str] = set()

    @property
    def now(self) -> int:
        return self.clock.now()

    async def enqueue(self, payload: object = 1, **options: Any) -> int:
        return (await self.app.enqueue(self.queue, payload, **options)).id

    async def take(self, count: int = 1, **options: Any) -> list[Job]:
        return await self.app.storage.take(self.queue, count, **options)

    async def end(self, job: Job) -> None:
        assert await self.app.storage.settle([Done(job.lease)]) == []

    async def worker(self, *queues: str, id: str = "w1", **said: Any) -> None:
        """A worker that serves these queues (none: the stage's), and says so now."""
        served = queues or (self.queue,)
        told = {"max_processors": 1, "processors": (), "slots": 10, **said}
        told.setdefault("free", told["slots"] - sum(state.jobs for state in told["processors"]))
        beat = Heartbeat(id, f"name-{id}", "host-1", 7, self.now - 60_000, self.now, served, **told)
        await self.write(PREFIX + id, encode(beat), ttl=600.0)

    def runs(self, queue: str | None = None, jobs: int = 1, seconds: float = 12.0) -> ProcessorState:
        return ProcessorState(queue or self.queue, jobs, 1, self.now - round(seconds * 1000), 10)

    def rates(self, seconds: float = 2.0) -> dict[str, QueueRate]:
        return {self.queue: QueueRate(10.0, 10 * seconds)}

    async def assign(self, workers: dict[str, dict[str, int]]) -> None:
        await self.write(ASSIGNMENT, msgspec.json.encode(Assignment(workers)), ttl=600.0)

    async def tokens(self, name: str, left: float) -> None:
        self._documents.add("budgets")
        assert await self.app.books.observe(Observation(name, left, self.now))

    async def write(self, name: str, value: bytes, **options: Any) -> None:
        self._documents.add(name)
        await self.app.storage.write(name, value, **options)

    async def why(self, id: int) -> Explanation:
        return await self.app.why(id)

    async def tidy(self) -> None:
        """What all tests of a server would see."""
        for name in self._documents:
            await self.app.storage.write(name, b"", ttl=0)


def verdicts(answer: Explanation) -> dict[str, str]:
    return {gate.name: gate.verdict for gate in answer.gates}


def shut(answer: Explanation) -> list[str]:
    return [gate.name for gate in answer.gates if gate.verdict == "shut"]


def facts(answer: Explanation, name: str) -> dict[str, Any]:
    (found,) = [gate.facts for gate in answer.gates if gate.name == name]
    return found
