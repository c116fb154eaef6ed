"""Reads the jobs of an app in testing mode.

Without `await`, wherever the test runs: a question that had to be awaited would pass if it was not.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, Protocol, TypeVar, cast

from accoda.app_testing.waiting import WaitingJob
from accoda.demand.demand import Demand
from accoda.enqueue import QueueSpec
from accoda.envelope import type_of
from accoda.errors import InvalidInput
from accoda.flows.model import LOG
from accoda.model import REPORTS, JobInfo
from accoda.payload import decode
from accoda.runtime.handler import Handler, QueueHandlers
from accoda.schedules.model import QUEUE as SCHEDULES
from accoda.storage.protocol import Store

T = TypeVar("T")
Target = str | Handler[Any, Any, Any]
"""A queue, or a handler: then only jobs that this handler runs."""
_MOVERS = frozenset({REPORTS, LOG, SCHEDULES})
LIKE = 0.8
"""How alike the name of a queue that does not exist has to be to one that does, from 0 to 1, to be a slip."""
OURS = "accoda."
"""What the names of the queues of system jobs begin with."""


class ReadApp(Protocol):
    """What reading needs of an app."""

    @property
    def handlers(self) -> Mapping[str, QueueHandlers]: ...

    @property
    def demands(self) -> Mapping[str, Demand[Any]]: ...

    @property
    def specs(self) -> Mapping[tuple[str, str | None], QueueSpec]: ...

    def queue_spec(self, queue: str, type: str | None = None) -> QueueSpec: ...


class JobReader:
    """The jobs of a store in memory, as their handlers see them."""

    def __init__(self, app: ReadApp, store: Store) -> None:
        self._app = app
        self._store = store

    def handled(self) -> list[str]:
        """The queues that have a handler of the user's. Results that demands have cached are no jobs for people."""
        caches = {demand.cache_queue for demand in self._app.demands.values()}
        return [queue for queue in self._app.handlers if queue not in caches]

    def ready(self, queues: Sequence[str]) -> list[str]:
        """Which of these queues have jobs that may start; all, if a flow or a schedule moves on, which may add some."""
        known = finished_at_once(self._store.stats()).queues
        ready = {queue for queue, counts in known.items() if counts.ready}
        return list(queues) if ready & _MOVERS else [queue for queue in queues if queue in ready]

    def check(self, target: Target | None) -> None:
        """Refuse what cannot have jobs here: of a queue that is misspelt, nothing would ever wait."""
        if target is None:
            return
        queue = queue_of(target)
        if not isinstance(target, str):
            its_app: object = target.app
            if its_app is not self._app:
                raise InvalidInput("target", f"{target!r} is of another app than the one under test")
            return
        declared = {name for name, _ in self._app.specs}
        known = {*self._app.handlers, *declared, *finished_at_once(self._store.stats()).queues}
        near = get_close_matches(queue[:100], sorted(known), 1, LIKE) if queue not in known else []
        if near:
            problem = f"the app has no queue {queue!r:.100}; is {near[0]!r} meant? If not, let the app declare it"
            raise InvalidInput("target", f"{problem}: app.declare(QueueSpec({queue!r:.100}))")

    def waiting(self, target: Target | None = None) -> list[WaitingJob[Any]]:
        """The jobs that wait in a queue, for a handler, or anywhere, in the order of their ids."""
        return [self._read(job) for job in self.jobs(target, "ready", "delayed", "held")]

    def jobs(self, target: Target | None, *states: Literal["ready", "delayed", "held", "dead"]) -> list[JobInfo]:
        """The jobs in these states, in the order of their ids."""
        queues = self._queues() if target is None else [queue_of(target)]
        found: list[JobInfo] = []
        for queue in queues:
            for state in states:
                found += finished_at_once(self._store.browse(queue, state, limit=10_000))
        mine = [job for job in found if target is None or self.is_of(target, job.queue, type_of(job.data))]
        return sorted(mine, key=lambda job: job.id)

    def is_of(self, target: Target, queue: str, type: str | None) -> bool:
        """Whether jobs of this queue and type are those of a target."""
        if isinstance(target, str):
            return queue == target
        handlers = self._app.handlers.get(queue)
        return handlers is not None and handlers.find(type) is target

    def shown(self, queue: str, payload: Any) -> Any:
        """A payload as people know it: the fetches of a demand go by their keys."""
        return payload.key if queue in self._app.demands else payload

    def _queues(self) -> list[str]:
        caches = {demand.cache_queue for demand in self._app.demands.values()}
        known = finished_at_once(self._store.stats()).queues
        return [queue for queue in known if queue not in caches and not queue.startswith(OURS)]

    def _read(self, job: JobInfo) -> WaitingJob[Any]:
        type = type_of(job.data)
        handlers = self._app.handlers.get(job.queue)
        handler = None if handlers is None else handlers.find(type)
        payload = decode(job.data) if handler is None else handler.codec.decode(job.data)
        return WaitingJob(self.shown(job.queue, payload), job, self._app.queue_spec(job.queue, type).policy)


def finished_at_once(call: Coroutine[Any, Any, T]) -> T:
    """The answer of a coroutine that waits for nothing, as those of a store in memory."""
    try:
        call.send(None)
    except StopIteration as ended:
        return cast(T, ended.value)
    call.close()
    raise RuntimeError("the store of a trial had to wait; ask it from the thread that runs the test")


def queue_of(target: Target) -> str:
    if not isinstance(target, str | Handler):
        raise InvalidInput("target", f"must be a handler or the name of a queue, not {target!r:.60}")
    return target if isinstance(target, str) else target.queue
