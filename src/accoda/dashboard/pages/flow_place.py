"""Where a job is in its flow: its node, what comes before it and what comes after it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from accoda.envelope import unwrap
from accoda.errors import NotFound
from accoda.flows.model import FlowInfo, NodeInfo
from accoda.model import ById, JobInfo

if TYPE_CHECKING:
    from accoda.app import App

AT_ONCE = 100
NEIGHBOURS = 20
"""Nodes before and after it that are shown; the page of the flow has all."""


class FlowNeighbours(Struct, frozen=True):
    """A node of a flow with those around it. `info` is None if the flow is gone. `jobs` are those that are stored."""

    id: str
    node: str
    info: FlowInfo | None = None
    before: list[NodeInfo] = []
    after: list[NodeInfo] = []
    more_before: int = 0
    more_after: int = 0
    jobs: dict[str, JobInfo] = {}


async def place_in_flow(app: App, id: int) -> FlowNeighbours | None:
    """Where a job is in its flow; None: it is in none."""
    job = (await (await app.connections.get()).look(ById(id))).job
    place = None if job is None else unwrap(job.data)[0].flow
    if place is None:
        return None
    try:
        info = await app.flows.get(place.id)
    except NotFound:
        return FlowNeighbours(place.id, place.node)
    own = info.nodes.get(place.node)
    before = [info.nodes[name] for name in (() if own is None else own.after) if name in info.nodes]
    after = [node for node in info.nodes.values() if place.node in node.after]
    shown = before[:NEIGHBOURS], after[:NEIGHBOURS]
    return FlowNeighbours(
        place.id,
        place.node,
        info,
        *shown,
        len(before) - len(shown[0]),
        len(after) - len(shown[1]),
        await jobs_of(app, (*shown[0], *shown[1])),
    )


async def jobs_of(app: App, nodes: Iterable[NodeInfo]) -> dict[str, JobInfo]:
    """The jobs of these nodes that are still stored, by the nodes' names. One that is done is kept for a while or not
    at all."""
    store = await app.connections.get()
    wanted = list({node.name: node.job_id for node in nodes if node.job_id is not None}.items())
    found: dict[str, JobInfo] = {}
    for begin in range(0, len(wanted), AT_ONCE):
        some = wanted[begin : begin + AT_ONCE]
        looks = await asyncio.gather(*(store.look(ById(id)) for _, id in some))
        found |= {name: look.job for (name, _), look in zip(some, looks, strict=True) if look.job is not None}
    return found
