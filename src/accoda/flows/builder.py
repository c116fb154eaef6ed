"""What a user builds a flow with: `app.flow(…)`, `chain`, `group`, and `app.current.flow` inside a node."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypedDict, Unpack

from msgspec import Struct
from msgspec.structs import replace

from accoda.enqueue import NO_CONNECTION, Encoded, EnqueueOptions
from accoda.envelope import Hook
from accoda.errors import InvalidInput
from accoda.flows.graph import NodeKind, NodeSpec
from accoda.flows.log import NIL, Add, Summary, new_mark, new_record, notes
from accoda.flows.model import (
    EDGES,
    KEEP_FOR,
    KEY_LENGTH,
    NAME_LENGTH,
    NODES,
    FlowInfo,
    When,
    check_label,
    check_when,
)
from accoda.model import NewJob
from accoda.priority import Priority
from accoda.times import milliseconds, seconds

UNSAID: Any = object()
"""No payload was given: in a chain the results of what comes before are the payload."""
_NOT_FOR_NODES = ("key", "on_duplicate", "waiter")


class NodeOptions(TypedDict, total=False):
    """What may be said of a node's job: see `EnqueueOptions`. A `delay` counts from when the node may start."""

    priority: Priority | str
    delay: float | timedelta | None
    at: datetime | int | None
    cost: int
    keep_for: float | timedelta | None
    type: str | None
    headers: Mapping[str, str] | None
    max_attempts: int | None
    webhook: str | Hook | None
    lane: str | None


MakeJob = Callable[[str, object, EnqueueOptions], NewJob]
"""Makes the job of a queue: `App.new_job`."""


class StoresFlows(Protocol):
    """What stores a flow: the app."""

    def new_job(self, queue: str, payload: object, options: EnqueueOptions) -> NewJob: ...

    async def start_flow(self, id: str, jobs: Sequence[NewJob], connection: object = None) -> FlowInfo: ...


class HasJobs(Protocol):
    """A handler, as far as a flow needs it."""

    @property
    def app(self) -> Any: ...
    @property
    def queue(self) -> str: ...
    @property
    def type(self) -> str | None: ...
    @property
    def __name__(self) -> str: ...


Work = HasJobs | tuple[str, str | None] | str
"""What a node runs: a handler, a queue and a type, or a queue alone."""


class JobCall(Struct, frozen=True):
    """A job that is to be part of a chain or a group: `send.job(payload)`. `name` is that of its node."""

    handler: Any
    payload: Any = UNSAID
    name: str | None = None
    options: NodeOptions = {}

    def __repr__(self) -> str:  # never the payload: it may be secret
        return f"<a job of {self.handler!r}>"


class Node:
    """A node that was added to a flow: give it as `after` to others."""

    def __init__(self, flow: object, number: int, name: str) -> None:
        self.flow = flow
        self.number = number
        self.name = name

    def __repr__(self) -> str:
        return f"<node {self.name}>"


After = Node | str | Iterable["Node | str"]


class Nodes:
    """Nodes that are being put together. Their names begin with `prefix`."""

    def __init__(self, make_job: MakeJob, owner: object, prefix: str = "") -> None:
        self.specs: list[NodeSpec] = []
        self._make_job = make_job
        self._owner = owner
        self._prefix = prefix
        self._suffixes: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._edges = 0

    def add(
        self,
        work: Work,
        payload: object,
        name: str | None,
        after: After,
        when: When,
        options: NodeOptions,
        *,
        detached: bool = False,
        kind: NodeKind = "job",
    ) -> Node:
        """One more node. Refuses what could not run, with the name of the node."""
        if len(self.specs) >= NODES:
            raise InvalidInput("nodes", f"a flow has at most {NODES:,}; split it, or let a node enqueue plain jobs")
        queue, type, word = _work(work)
        name = self._name(name, word)
        before = self._numbers_of(name, after)
        _check_start(name, when, before)
        _check_options(name, options, type)
        takes_results = payload is UNSAID and bool(before)
        if payload is UNSAID:
            payload = Encoded(NIL) if takes_results else None
        job = self._job(name, queue, payload, {**options, "type": type or options.get("type"), "name": name})
        self._edges += len(before)
        timing = (float(job.rank), job.delay, job.start_at, job.cost, float(job.keep_for))
        more = (takes_results, detached, kind, job.lane)
        return self._append(NodeSpec(name, queue, job.data, before, when, *timing, *more))

    def map(
        self,
        work: Work,
        payloads: Iterable[object],
        name: str | None,
        after: After,
        when: When,
        options: NodeOptions,
        *,
        detached: bool = False,
    ) -> list[Node]:
        """A node for each payload: `name-1`, `name-2` and so on."""
        word = name or _work(work)[2]
        after = after if isinstance(after, (Node, str)) else list(after)  # an iterator can be read only once
        return [
            self.add(work, payload, f"{word}-{number}", after, when, options, detached=detached)
            for number, payload in enumerate(payloads, 1)
        ]

    def gate(self, name: str) -> Node:
        """A node without a job: it ends when the batch is closed."""
        return self._append(NodeSpec(name, kind="gate"))

    def _append(self, spec: NodeSpec) -> Node:
        node = Node(self._owner, len(self.specs), spec.name)
        self._numbers[spec.name] = node.number
        self.specs.append(spec)
        return node

    def _job(self, name: str, queue: str, payload: object, options: Mapping[str, Any]) -> NewJob:
        given: EnqueueOptions = {key: value for key, value in options.items() if value is not None}  # type: ignore[assignment]
        try:
            return self._make_job(queue, payload, given)
        except InvalidInput as error:
            error.args = (f"node {name!r}: {error}",)
            raise

    def _name(self, given: str | None, word: str) -> str:
        """The name of a new node. One that was given none gets one that no other has."""
        name = word if given is None else given
        if self._prefix:
            name = f"{self._prefix}{name or word}"
        return self._free_name(name) if given is None else self._own_name(name)

    def _own_name(self, name: str) -> str:
        check_label("name", name)
        if name in self._numbers:
            raise InvalidInput("name", f"the flow has a node {name!r} already; give this one another name")
        return name

    def _free_name(self, word: str) -> str:
        """The handler's name, numbered where there are several."""
        word = word.replace("/", ".")[: NAME_LENGTH - 10]
        if word not in self._numbers:
            return check_label("name", word)
        number = self._suffixes.get(word, 2)
        while f"{word}-{number}" in self._numbers:
            number += 1
        self._suffixes[word] = number
        return f"{word}-{number}"

    def _numbers_of(self, name: str, after: After) -> tuple[int, ...]:
        if not isinstance(after, (Node, str, Iterable)):
            raise InvalidInput("after", f"node {name!r}: must be nodes or their names, not {after!r:.60}")
        found: dict[int, None] = {}
        for one in [after] if isinstance(after, (Node, str)) else after:
            if isinstance(one, Node):
                if one.flow is not self._owner:
                    raise InvalidInput("after", f"node {name!r}: {one!r} is not of this flow")
                found[one.number] = None
            elif isinstance(one, str) and one in self._numbers:
                found[self._numbers[one]] = None
            elif one == name:
                raise InvalidInput("after", f"node {name!r} cannot come after itself: that is a cycle")
            else:
                raise InvalidInput(
                    "after",
                    f"node {name!r}: there is no node {one!r:.80} yet; add it first, nodes come after older ones",
                )
        if self._edges + len(found) > EDGES:
            raise InvalidInput("after", f"node {name!r}: a flow has at most {EDGES:,} pairs; put a node between them")
        return tuple(found)


def _check_start(name: str, when: When, before: Sequence[int]) -> None:
    check_when(when)
    if when in ("any_done", "any_dead") and not before:
        raise InvalidInput("when", f"node {name!r}: {when} needs nodes before it; name them with after=…")


def _check_options(name: str, options: NodeOptions, type: str | None) -> None:
    for option in options:
        if option in _NOT_FOR_NODES:
            raise InvalidInput(
                option, f"node {name!r}: the job of a node has a key of its own, so it takes no {option}"
            )
        if option == "connection":
            raise InvalidInput(option, f"node {name!r}: {NO_CONNECTION}; flow.start(connection=…) takes one")
        if option not in NodeOptions.__annotations__:
            known = ", ".join(NodeOptions.__annotations__)
            raise InvalidInput(option, f"node {name!r}: there is no such option; use {known}")
    if type is not None and options.get("type") not in (None, type):
        raise InvalidInput("type", f"node {name!r}: its handler is for jobs of type {type!r}")


def _work(work: Work) -> tuple[str, str | None, str]:
    """The queue and type of a node's job, and a word to name it by."""
    if isinstance(work, str):
        return work, None, work
    if isinstance(work, tuple) and len(work) == 2 and isinstance(work[0], str):
        return work[0], work[1], work[1] or work[0]
    if hasattr(work, "queue") and hasattr(work, "app"):
        return work.queue, work.type, work.__name__
    raise InvalidInput("handler", f"must be a handler, a (queue, type) or a queue, not {work!r:.60}")


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

    def add(
        self,
        handler: Work,
        payload: object = None,
        *,
        name: str | None = None,
        after: After = (),
        when: When = "all_done",
        **options: Unpack[NodeOptions],
    ) -> Node:
        """Add a node: a job that starts when the nodes that it comes `after` have ended as `when` says.

        `all_done`: all of them are done. `all_ended`: all have ended, in whatever way. `any_done`: one of them is done.
        `any_dead`: one of them is dead. `options` are those of `enqueue`, except the ones about keys; a `delay` counts
        from when the node may start.
        """
        return self.nodes.add(handler, payload, name, after, when, options)

    def map(
        self,
        handler: Work,
        payloads: Iterable[object],
        *,
        name: str | None = None,
        after: After = (),
        when: When = "all_done",
        **options: Unpack[NodeOptions],
    ) -> list[Node]:
        """Add a node for each payload: `name-1`, `name-2` and so on."""
        return self.nodes.map(handler, payloads, name, after, when, options)

    def on_cancel(
        self, handler: Work, payload: object = None, *, name: str | None = None, **options: Unpack[NodeOptions]
    ) -> Node:
        """Add a node that runs only if the flow is cancelled or its deadline comes, after all that ran was stopped."""
        return self.nodes.add(handler, payload, name, (), "all_done", options, kind="on_cancel")

    def jobs(self) -> list[NewJob]:
        """What `start` stores, all in one step: to be enqueued in a transaction of your own."""
        if not self.nodes.specs:
            raise InvalidInput("nodes", f"the flow {self.name!r} has none; add some first")
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
        self._nodes = Nodes(make_job, self, prefix=f"{node}.")
        self._tell = tell

    def add(
        self,
        handler: Work,
        payload: object = None,
        *,
        name: str | None = None,
        after: After = (),
        when: When = "all_done",
        detached: bool = False,
        **options: Unpack[NodeOptions],
    ) -> Node:
        """Add a node. `after` may name nodes that this run has added."""
        node = self._nodes.add(handler, payload, name, after, when, options, detached=detached)
        self._store([node])
        return node

    def map(
        self,
        handler: Work,
        payloads: Iterable[object],
        *,
        name: str | None = None,
        after: After = (),
        when: When = "all_done",
        detached: bool = False,
        **options: Unpack[NodeOptions],
    ) -> list[Node]:
        """Add a node for each payload: `name-1`, `name-2` and so on."""
        nodes = self._nodes.map(handler, payloads, name, after, when, options, detached=detached)
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


class Group(Struct, frozen=True):
    """Jobs that run side by side: part of a chain, or a flow of its own."""

    parts: tuple[Any, ...]

    def flow(self, name: str = "group", **options: Any) -> Flow:
        """The flow with these jobs."""
        return chain(self).flow(name, **options)

    async def start(self, *, connection: object = None) -> FlowInfo:
        """Start it as a flow of its own: see `Flow.start`."""
        return await self.flow().start(connection=connection)


class Chain(Struct, frozen=True):
    """Jobs that run one after the other."""

    parts: tuple[Any, ...]

    def flow(self, name: str = "chain", **options: Any) -> Flow:
        """The flow with these jobs, to which more may be added; options are those of `app.flow`."""
        built = Flow(_app_of(self), name, **options)
        _build(built, self, ())
        return built

    async def start(self, *, connection: object = None) -> FlowInfo:
        """Start it as a flow of its own: see `Flow.start`."""
        return await self.flow().start(connection=connection)


def chain(*parts: JobCall | Group | Chain) -> Chain:
    """Jobs one after the other: `await chain(load.job("a.csv"), parse.job(), save.job()).start()`.

    A job without a payload gets what the one before it returned, or after a group the list of what its jobs returned.
    """
    return Chain(_checked("chain", parts))


def group(*parts: JobCall | Group | Chain) -> Group:
    """Jobs side by side. In a chain the next part runs when all of them are done."""
    return Group(_checked("group", parts))


chord = chain
"""By this name for those who come from Celery: `chord(group(…), callback.job())`."""


def _checked(word: str, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    if not parts:
        raise InvalidInput(word, "needs at least one job: handler.job(payload)")
    for part in parts:
        if not isinstance(part, (JobCall, Group, Chain)):
            raise InvalidInput(word, f"is made of handler.job(…), group(…) and chain(…), not {part!r:.60}")
    return parts


def _app_of(part: Any) -> StoresFlows:
    while not isinstance(part, JobCall):
        part = part.parts[0]
    app: StoresFlows = part.handler.app
    return app


def _build(flow: Flow, part: Any, after: Sequence[Node]) -> list[Node]:
    """Add a part after these nodes; the nodes that the next part comes after."""
    if isinstance(part, JobCall):
        return [flow.nodes.add(part.handler, part.payload, part.name, list(after), "all_done", part.options)]
    if isinstance(part, Group):
        return [node for one in part.parts for node in _build(flow, one, after)]
    last = list(after)
    for one in part.parts:
        last = _build(flow, one, last)
    return last


def new_id() -> str:
    """A flow's id: short enough to be typed, and unlike every other."""
    return secrets.token_hex(8)
