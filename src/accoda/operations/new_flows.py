"""New flows as they are requested on the wire. Everything is checked first; errors name the wire's fields."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from accoda.enqueue import EnqueueOptions
from accoda.envelope import HEADERS, URL_LENGTH, Event
from accoda.errors import InvalidInput
from accoda.flows.builder import Flow
from accoda.flows.flows import Flows
from accoda.flows.model import KEEP_FOR, KEY_LENGTH, NAME_LENGTH, FlowInfo
from accoda.flows.nodes import Placing
from accoda.limits import COST
from accoda.model import NewJob
from accoda.operations import moments
from accoda.operations.host import Host
from accoda.operations.lanes import LaneName
from accoda.operations.levels import Level
from accoda.operations.new_jobs import HeaderName, HeaderText, JobType, Name, NewJobRequest, Seconds, prepare
from accoda.operations.views import same
from accoda.storage.protocol import Store

LABEL = "^[^\\x00-\\x1f\\x7f-\\x9f/]+$"
"""A name of a flow or a node, and a flow's key."""
Label = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH, extra_json_schema={"pattern": LABEL})]
Key = Annotated[str, Meta(min_length=1, max_length=KEY_LENGTH, extra_json_schema={"pattern": LABEL})]
Condition = Literal["all_done", "all_ended", "any_done", "any_dead", "on_cancel"]

_SHARED = (
    "queue type payload priority scheduled_at delay cost keep_for max_retries webhook_url webhook_on headers "
    "secret_fields lane"
)


class NewNode(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A job of a new flow. It starts when the nodes that it comes `after`, which are before it in the list, have ended
    as `when` says; with `on_cancel` only if the flow is cancelled or expires. A `delay` counts from when it may start.
    """

    name: Label
    queue: Name | None = None
    type: JobType | None = None
    payload: Any = None
    after: Annotated[tuple[Label, ...], Meta(max_length=10_000)] = ()
    when: Condition = "all_done"
    priority: Level | None = None
    scheduled_at: Annotated[str, Meta(max_length=64, extra_json_schema=moments.SHAPE)] | None = None
    delay: Seconds | None = None
    cost: Annotated[int, Meta(ge=0, le=COST)] | None = None
    keep_for: Seconds | None = None
    max_retries: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    webhook_url: Annotated[str, Meta(min_length=1, max_length=URL_LENGTH)] | None = None
    webhook_on: Annotated[tuple[Event, ...], Meta(min_length=1, max_length=2)] | None = None
    headers: Annotated[dict[HeaderName, HeaderText], Meta(max_length=HEADERS)] | None = None
    secret_fields: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=200)], ...], Meta(max_length=50)] = ()
    lane: LaneName | None = None

    def job(self) -> NewJobRequest:
        """The request for its job."""
        return NewJobRequest(**same(self, _SHARED))


class NewFlow(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Jobs that depend on each other, stored in one step. `key` becomes the flow's id, and starts it only once.

    `deadline` (RFC 3339) or `expiresIn` (seconds from the start) say when what has not ended is taken back. The flow is
    kept for `keepFor` seconds after its end.
    """

    name: Label
    key: Key | None = None
    deadline: Annotated[str, Meta(max_length=64, extra_json_schema=moments.SHAPE)] | None = None
    expires_in: Seconds | None = None
    keep_for: Seconds = KEEP_FOR
    nodes: Annotated[list[NewNode], Meta(min_length=1)]


async def start(host: Host, wanted: NewFlow, jobs: Sequence[NewJobRequest]) -> tuple[str, bool]:
    """Store a flow; its id, and whether it is new: False if one with its key was there.

    `jobs` are those of its nodes, each with its queue.
    """
    starter = _Starter(host, await host.connections.get())
    return (await _build(starter, wanted, jobs).start()).id, starter.created


class _Starter:
    """Makes the jobs of nodes from requests, and stores the flow."""

    def __init__(self, host: Host, store: Store) -> None:
        self.created = False
        self._host = host
        self._store = store

    def new_job(self, queue: str, payload: object, options: EnqueueOptions) -> NewJob:
        assert isinstance(payload, NewJobRequest)
        return prepare(self._host, [payload])[0]

    async def start_flow(self, id: str, jobs: Sequence[NewJob], connection: object = None) -> FlowInfo:
        self.created = (await self._store.enqueue(jobs))[0].what == "created"
        return await Flows(lambda: self._store).get(id)


def _build(starter: _Starter, wanted: NewFlow, jobs: Sequence[NewJobRequest]) -> Flow:
    flow = Flow(starter, wanted.name, deadline=_deadline(wanted), key=wanted.key, keep_for=wanted.keep_for)
    for number, (node, job) in enumerate(zip(wanted.nodes, jobs, strict=True)):
        on_cancel = node.when == "on_cancel"
        try:
            if on_cancel and node.after:
                raise InvalidInput("after", "a node for on_cancel comes after no other: it runs when all have ended")
            flow.nodes.add(
                (job.queue or "", job.type),
                job,
                Placing(node.name, node.after, "all_done" if node.when == "on_cancel" else node.when),
                {},
                kind="on_cancel" if on_cancel else "job",
            )
        except InvalidInput as error:
            _rename(error, f"nodes[{number}].", node.name)
            raise
    return flow


def _deadline(wanted: NewFlow) -> datetime | float | None:
    if wanted.deadline is None:
        return wanted.expires_in
    if wanted.expires_in is not None:
        raise InvalidInput("expiresIn", "give either deadline or expiresIn, not both")
    return datetime.fromtimestamp(moments.read("deadline", wanted.deadline) / 1000, UTC)


def _rename(error: InvalidInput, prefix: str, node: str) -> None:
    """Say in the field's name of which node it is, and not again in the text."""
    problem = str(error)
    for said in (f"node {node!r}: ", f"{error.field}: ", f"node {node!r}: "):
        problem = problem.removeprefix(said)
    error.field = prefix + error.field
    error.args = (f"{error.field}: {problem}",)
