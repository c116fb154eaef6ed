"""Nodes that are being put together: each is checked when it is added, before anything is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Protocol, TypedDict, cast

from msgspec import Struct
from msgspec.structs import replace

from accoda.enqueue import NO_CONNECTION, Encoded, EnqueueOptions
from accoda.envelope import Hook
from accoda.errors import InvalidInput
from accoda.flows.graph import NodeKind, NodeSpec
from accoda.flows.log import NIL
from accoda.flows.model import EDGES, NAME_LENGTH, NODES, WHENS, When, check_label
from accoda.model import NewJob
from accoda.priority import Priority

UNSAID: Any = object()
"""No payload was given: in a chain the results of what comes before are the payload."""
PREFIX_LENGTH = 100
"""Characters up to which the name of a node is all of the beginning of the names of those that it adds."""
_PLACING = "flow.add also takes name, after and when"
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


class Node:
    """A node that was added to a flow: give it as `after` to others."""

    def __init__(self, flow: object, number: int, name: str) -> None:
        self.flow = flow
        self.number = number
        self.name = name

    def __repr__(self) -> str:
        return f"<node {self.name}>"


After = Node | str | Iterable["Node | str"]


class NewNodeOptions(NodeOptions, total=False):
    """What may be said of a node: its `name`, which nodes it comes `after`, `when` it starts, and what its job is like.

    `all_done`: when all of them are done. `all_ended`: when all have ended, in whatever way. `any_done`: when one of
    them is done. `any_dead`: when one of them is dead.
    """

    name: str | None
    after: After
    when: When


class AddedNodeOptions(NewNodeOptions, total=False):
    """The same of a node that a running one adds. `detached`: the nodes after that one do not wait for it."""

    detached: bool


class Placing(Struct, frozen=True):
    """Where a node is in its flow."""

    name: str | None = None
    after: After = ()
    when: When = "all_done"
    detached: bool = False


def placing_in(options: NewNodeOptions, *more: str) -> tuple[Placing, NodeOptions]:
    """What options say of the place of a node, and what of its job. `more` are names of fields of `Placing`."""
    given: dict[str, Any] = {**options}
    placing = {name: given.pop(name) for name in ("name", "after", "when", *more) if name in given}
    return Placing(**placing), cast(NodeOptions, given)


class Nodes:
    """Nodes that are being put together. Their names begin with `prefix`."""

    def __init__(self, make_job: MakeJob, owner: object, prefix: str = "") -> None:
        self.specs: list[NodeSpec] = []
        self.stored = False
        """The flow was started with these nodes: what is added now would be lost."""
        self._make_job = make_job
        self._owner = owner
        self._prefix = prefix
        self._suffixes: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._edges = 0

    def add(self, work: Work, payload: object, place: Placing, options: NodeOptions, *, kind: NodeKind = "job") -> Node:
        """One more node. Refuses what could not run, with the name of the node."""
        queue, type, word = _work(work)
        name = self._name(place.name, word)
        self._check_room(name)
        before = self._numbers_of(name, place.after)
        _check_start(name, place.when, before)
        _check_options(name, options, type)
        takes_results = payload is UNSAID and bool(before)
        if payload is UNSAID:
            payload = Encoded(NIL) if takes_results else None
        job = self._job(name, queue, payload, {**options, "type": type or options.get("type"), "name": name})
        self._edges += len(before)
        timing = (float(job.rank), job.delay, job.start_at, job.cost, float(job.keep_for))
        more = (takes_results, place.detached, kind, job.lane)
        return self._append(NodeSpec(name, queue, job.data, before, place.when, *timing, *more))

    def map(self, work: Work, payloads: Iterable[object], place: Placing, options: NodeOptions) -> list[Node]:
        """A node for each payload: `name-1`, `name-2` and so on."""
        word = place.name or _work(work)[2]
        after = place.after
        if isinstance(after, Iterable) and not isinstance(after, str):
            after = tuple(after)  # an iterator can be read only once
        return [
            self.add(work, payload, replace(place, name=f"{word}-{number}", after=after), options)
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

    def _check_room(self, name: str) -> None:
        if self.stored:
            more = "a node of it adds more with app.current.flow.add"
            raise InvalidInput("nodes", f"node {name!r}: the flow was started already; {more}")
        if len(self.specs) >= NODES:
            more = "split it, or let a node enqueue plain jobs"
            raise InvalidInput("nodes", f"node {name!r}: a flow has at most {NODES:,}; {more}")

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
        word = word[: NAME_LENGTH - 10]
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
                first = "nodes come after earlier ones, so add that one first"
                raise InvalidInput("after", f"node {name!r}: there is no node {one!r:.80} before it; {first}")
        for number in found:
            if self.specs[number].kind == "on_cancel":
                why = "which runs only if the flow is cancelled or expires"
                raise InvalidInput("after", f"node {name!r} cannot come after {self.specs[number].name!r}, {why}")
        if self._edges + len(found) > EDGES:
            raise InvalidInput("after", f"node {name!r}: a flow has at most {EDGES:,} pairs; put a node between them")
        return tuple(found)


def prefix_of(node: str) -> str:
    """What the names of the nodes that a node adds begin with.

    A long name is cut and told apart by a hash: nodes may add nodes that add nodes, without end.
    """
    if len(node) <= PREFIX_LENGTH:
        return f"{node}."
    digest = sha256(node.encode()).hexdigest()[:16]
    return f"{node[: PREFIX_LENGTH - len(digest) - 1]}~{digest}."


def _check_start(name: str, when: When, before: Sequence[int]) -> None:
    if when not in WHENS:
        raise InvalidInput("when", f"node {name!r}: must be one of {', '.join(WHENS)}, not {when!r:.60}")
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
            raise InvalidInput(option, f"node {name!r}: there is no such option; use {known}; {_PLACING}")
    if type is not None and options.get("type") not in (None, type):
        raise InvalidInput("type", f"node {name!r}: its handler is for jobs of type {type!r}")


def _work(work: Work) -> tuple[str, str | None, str]:
    """The queue and type of a node's job, and a word to name it by."""
    if isinstance(work, str):
        return work, None, work.replace("/", ".")
    if isinstance(work, tuple) and len(work) == 2 and isinstance(work[0], str):
        return work[0], work[1], str(work[1] or work[0]).replace("/", ".")
    if hasattr(work, "queue") and hasattr(work, "app"):
        return work.queue, work.type, work.__name__.replace("/", ".")
    raise InvalidInput("handler", f"must be a handler, a (queue, type) or a queue, not {work!r:.60}")
