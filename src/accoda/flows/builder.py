"""What a user builds a flow with: `app.flow(…)`, and `app.current.flow` inside a node."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol, Unpack

from msgspec.structs import replace

from accoda.enqueue import EnqueueOptions
from accoda.errors import InvalidInput
from accoda.flows.log import Add, Summary, new_mark, new_record, notes
from accoda.flows.model import KEEP_FOR, KEY_LENGTH, FlowInfo, check_label
from accoda.flows.nodes import (
    AddedNodeOptions,
    MakeJob,
    NewNodeOptions,
    Node,
    NodeOptions,
    Nodes,
    Placing,
    Work,
    placing_in,
    prefix_of,
)
from accoda.model import NewJob
from accoda.times import milliseconds, seconds


class StoresFlows(Protocol):
    """What stores a flow: the app."""

    def new_job(self, queue: str, payload: object, options: EnqueueOptions) -> NewJob: ...

    async def start_flow(self, id: str, jobs: Sequence[NewJob], connection: object = None) -> FlowInfo: ...


class Flow:
    """Jobs that depend on each other. Nothing is stored before `start`."""

    def __init__(
        self,
        app: StoresFlows,
        name: str,
        *,
        deadline: datetime | timedelta | float | None = None,
        key: str | None = None,
        keep_for: float | timedelta = KEEP_FOR,
    ) -> None:
        self.app = app
        self.name = check_label("name", name)
        self.id = new_id() if key is None else check_label("key", key, KEY_LENGTH)
        """What the flow is found by. A flow with a key has that as its id."""
        self.nodes = Nodes(app.new_job, self)
        self._deadline = milliseconds("deadline", deadline) if isinstance(deadline, datetime) else None
        in_time = None if isinstance(deadline, datetime) or deadline is None else seconds("deadline", deadline)
        self._expires_in = in_time
        self._keep_for = seconds("keep_for", keep_for)

    def add(self, handler: Work, payload: object = None, **options: Unpack[NewNodeOptions]) -> Node:
        """Add a node: a job that starts when the nodes that it comes `after` have ended as `when` says.

        See `NewNodeOptions` for what may be said. The options of its job are those of `enqueue`, except the ones about
        keys; a `delay` counts from when the node may start.
        """
        return self.nodes.add(handler, payload, *placing_in(options))

    def map(self, handler: Work, payloads: Iterable[object], **options: Unpack[NewNodeOptions]) -> list[Node]:
        """Add a node for each payload: `name-1`, `name-2` and so on."""
        return self.nodes.map(handler, payloads, *placing_in(options))

    def on_cancel(
        self, handler: Work, payload: object = None, *, name: str | None = None, **options: Unpack[NodeOptions]
    ) -> Node:
        """Add a node that runs only if the flow is cancelled or its deadline comes, after all that ran was stopped."""
        return self.nodes.add(handler, payload, Placing(name), options, kind="on_cancel")

    def jobs(self) -> list[NewJob]:
        """What `start` stores, all in one step: to be enqueued in a transaction of your own."""
        if not self.nodes.specs:
            raise InvalidInput("nodes", f"the flow {self.name!r} has none; add some first")
        if all(spec.kind == "on_cancel" for spec in self.nodes.specs):
            raise InvalidInput("nodes", f"all those of the flow {self.name!r} are for on_cancel; add what it is to run")
        is_batch = self.nodes.specs[0].kind == "gate"
        waiting = sum(spec.kind == "job" for spec in self.nodes.specs)
        summary = Summary(
            self.name,
            new_mark(),
            deadline=self._deadline,
            expires_in=self._expires_in,
            keep_for=self._keep_for,
            counts={"waiting": waiting} if waiting else {},  # lists show it before its first round
            progress=(0, 0 if is_batch else waiting),
            open=is_batch,
        )
        self.nodes.stored = True
        return new_record(self.id, summary, self.nodes.specs)

    async def start(self, *, connection: object = None) -> FlowInfo:
        """Store the whole flow in one step, and give it as it is then.

        A flow with a key is started once: as long as one with that key is known (it runs, or ended and is kept), that
        one is given. With `connection`, an async connection to a database, the flow is part of the transaction that is
        open there, and given as it will be when that commits.
        """
        return await self.app.start_flow(self.id, self.jobs(), connection)

    def __repr__(self) -> str:
        return f"<flow {self.name}, {len(self.nodes.specs)} nodes>"


class RunningFlow:
    """`app.current.flow`: the flow of the job that runs here, to which it may add nodes.

    They are stored in the step in which the job is done, and not at all if it is not. Their names begin with that of
    the node that adds them: "split.page-1". Nodes that come after this one wait for what it adds, too, unless that is
    `detached`.
    """

    def __init__(self, make_job: MakeJob, id: str, node: str, tell: Callable[[NewJob], None]) -> None:
        self.id = id
        self.node = node
        """The node whose job runs here."""
        self._nodes = Nodes(make_job, self, prefix_of(node))
        self._tell = tell

    def add(self, handler: Work, payload: object = None, **options: Unpack[AddedNodeOptions]) -> Node:
        """Add a node. `after` may name nodes that this run has added."""
        node = self._nodes.add(handler, payload, *placing_in(options, "detached"))
        self._store([node])
        return node

    def map(self, handler: Work, payloads: Iterable[object], **options: Unpack[AddedNodeOptions]) -> list[Node]:
        """Add a node for each payload: `name-1`, `name-2` and so on."""
        nodes = self._nodes.map(handler, payloads, *placing_in(options, "detached"))
        if nodes:
            self._store(nodes)
        return nodes

    def _store(self, nodes: Sequence[Node]) -> None:
        specs = self._nodes.specs
        named = [
            replace(spec, after=tuple(specs[int(number)].name for number in spec.after))
            for spec in (specs[node.number] for node in nodes)
        ]
        for note in notes(self.id, Add(tuple(named), self.node)):
            self._tell(note)


def new_id() -> str:
    """A flow's id: short enough to be typed, and unlike every other."""
    return secrets.token_hex(8)
