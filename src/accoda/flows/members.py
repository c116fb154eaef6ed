"""What a running job knows of its flow: the results of the nodes before it, and how to add nodes.

Results travel in the job's envelope. Those that would make it too large are read when the job is taken, and results
that are too large for a report are written as documents before the job is settled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

from msgspec.structs import replace

from accoda.envelope import MARK, FlowPlace, JobMetadata, unwrap, wrap
from accoda.errors import InvalidInput
from accoda.flows.graph import FlowGraph, NodeRecord
from accoda.flows.log import NIL
from accoda.flows.reading import FlowReader, body_of, document_name
from accoda.limits import allowed
from accoda.model import RESULT_IN_REPORT, Bury, Done, Job, Outcome
from accoda.payload import Codec, UnreadablePayload
from accoda.storage.protocol import Store

IN_ENVELOPE = 65_536
"""Bytes of results, all together, up to which they travel in the envelope."""

V = TypeVar("V")
D = TypeVar("D")

Insist = Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Calls the store until it answers; None: it will not."""


class Parents(Mapping[str, Any]):
    """The results of the nodes before a node, by name; of nodes that are not done there is none.

    `parents["charge"]` is of plain values, `parents.get("charge", type=Charge)` of the type that is asked for.
    """

    def __init__(self, results: Mapping[str, bytes]) -> None:
        self._results = results

    def __getitem__(self, name: str) -> Any:
        try:
            return self._read(name, Any)
        except KeyError:
            names = ", ".join(self._results) or "none of them is done"
            raise KeyError(f"no node {name!r} before this one is done; there are: {names}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    @overload
    def get(self, name: str, /) -> Any: ...
    @overload
    def get(self, name: str, /, *, type: type[V]) -> V | None: ...
    @overload
    def get(self, name: str, default: D, /, *, type: type[V]) -> V | D: ...
    @overload
    def get(self, name: str, default: Any = None, /, *, type: Any = Any) -> Any: ...

    def get(self, name: str, default: Any = None, /, *, type: Any = Any) -> Any:
        """The result of a node as a value of this type; the default if the node is not done."""
        return default if name not in self._results else self._read(name, type)

    def _read(self, name: str, type: Any) -> Any:
        try:
            return Codec(type).decode(self._results[name])
        except UnreadablePayload as error:
            problem = str(error).replace("the payload", "it", 1)
            raise InvalidInput("type", f"the result of node {name!r} does not fit: {problem}") from error


def flow_place(job: Job) -> FlowPlace | None:
    """Where a job is in its flow; None: it is in none."""
    if job.key is None or not job.data or job.data[0] != MARK:  # a job of a flow has a key and an envelope
        return None
    return unwrap(job.data)[0].flow


def parents_of(job: Job) -> Parents:
    """The results of the nodes before a running one."""
    place = flow_place(job)
    if place is None:
        raise InvalidInput("parents", f"job {job.id} is in no flow, so there is no node before it")
    return Parents(place.parents)


def joined(metadata: JobMetadata, payload: bytes, place: FlowPlace, results: Mapping[str, bytes]) -> bytes:
    """The data of a node's job with the results of the nodes before it."""
    if place.takes_results:
        bodies = list(results.values())
        payload = bodies[0] if place.takes_results == "one" and bodies else _array(bodies)
    return wrap(payload, replace(metadata, flow=replace(place, parents=dict(results), read=False)))


def _array(bodies: Sequence[bytes]) -> bytes:
    """msgpack values as one array, without decoding them."""
    count = len(bodies)
    head = bytes((0x90 | count,)) if count < 16 else b"\xdd" + count.to_bytes(4, "big")
    return head + b"".join(bodies)


def small_results(graph: FlowGraph, node: NodeRecord, most: int) -> dict[str, bytes] | None:
    """The results of the nodes before one that are done; None if they must be read from the store."""
    results: dict[str, bytes] = {}
    size = 0
    for before in graph.parents(node):
        report = before.report
        if before.state != "done" or report is None:
            continue
        if report.size > len(report.body):
            return None
        results[before.spec.name] = report.body if report.size >= 0 else NIL
        size += len(results[before.spec.name])
        if size > most:
            return None
    return results


class FlowMembers:
    """The jobs of flows among those that a worker took from a queue. Other jobs cost a look at their key."""

    def __init__(self, store: Callable[[], Store], insist: Insist) -> None:
        self._store = store
        self._insist = insist
        self._reader = FlowReader()
        self.places: dict[int, FlowPlace] = {}
        """By job, those that were taken and are not settled yet."""

    async def opening(self, jobs: list[Job]) -> None:
        """Jobs were taken: give those that need it the results of the nodes before them."""
        for index, job in enumerate(jobs):
            place = flow_place(job)
            if place is not None:
                self.places[job.id] = place
                if place.read:
                    jobs[index] = await self._with_results(job, place)

    async def ending(self, outcomes: list[Outcome]) -> None:
        """Jobs are about to be settled: keep results that are too large for a report."""
        for index, outcome in enumerate(outcomes):
            place = self.places.pop(outcome.lease.id, None)
            if place is not None and isinstance(outcome, Done):
                outcomes[index] = await self._with_document(outcome, place)

    def forget(self, jobs: Iterable[Job]) -> None:
        """Nothing becomes of these jobs here."""
        for job in jobs:
            self.places.pop(job.id, None)

    async def _with_results(self, job: Job, place: FlowPlace) -> Job:
        """The job with the results of the nodes before it, which were too many for its envelope."""
        results = await self._insist("read the results of a flow", lambda: self._results(place))
        if results is None:
            return job  # the store will not have it, or the flow is gone: the job has no results
        metadata, payload = unwrap(job.data)
        return replace(job, data=joined(metadata, payload, place, results))

    async def _results(self, place: FlowPlace) -> dict[str, bytes] | None:
        store = self._store()
        log = await self._reader.read(store, place.id)
        if log is None or place.node not in log.graph.by_name:
            return None
        self._reader.keep(log)
        results: dict[str, bytes] = {}
        for before in log.graph.parents(log.graph.by_name[place.node]):
            if before.state == "done" and before.report is not None:
                body = await body_of(store, place.id, before.report)
                results[before.spec.name] = NIL if body is None else body
        return results

    async def _with_document(self, outcome: Done, place: FlowPlace) -> Outcome:
        """Keep a result that is too large for the report, before the report tells of it.

        The name has the lease's attempts: what a run writes whose lease was lost is never read.
        """
        if outcome.result is None or len(outcome.result) <= RESULT_IN_REPORT:
            return outcome
        if len(outcome.result) > allowed.document:
            size = f"{len(outcome.result):,} bytes; a result of a flow may have {allowed.document:,}"
            return Bury(outcome.lease, f"result: it has {size} (ACCODA_MAX_DOCUMENT), or return a reference to it")
        name, result = document_name(place.id, outcome.lease.id, outcome.lease.attempts), outcome.result
        await self._insist("keep a large result", lambda: self._store().write(name, result))
        return outcome
