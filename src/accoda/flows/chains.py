"""Chains and groups: flows of jobs one after the other, and side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from accoda.errors import InvalidInput
from accoda.flows.builder import Flow, StoresFlows
from accoda.flows.model import FlowInfo
from accoda.flows.nodes import UNSAID, Node, NodeOptions, Placing


class JobCall(Struct, frozen=True):
    """A job that is to be part of a chain or a group: `send.job(payload)`. `name` is that of its node."""

    handler: Any
    payload: Any = UNSAID
    name: str | None = None
    options: NodeOptions = {}

    def __repr__(self) -> str:  # never the payload: it may be secret
        return f"<a job of {self.handler!r}>"


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
        return [flow.nodes.add(part.handler, part.payload, Placing(part.name, after), part.options)]
    if isinstance(part, Group):
        return [node for one in part.parts for node in _build(flow, one, after)]
    last = list(after)
    for one in part.parts:
        last = _build(flow, one, last)
    return last
