"""In which column each node of a flow is, and which chain of nodes took longest. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from accoda.flows.model import NodeInfo


class Layers(Struct, frozen=True):
    """A flow by columns. What a node comes after includes the node that added it at run time."""

    nodes: Mapping[str, NodeInfo]
    before: dict[str, list[str]]
    after: dict[str, list[str]]
    columns: list[list[str]]

    def in_order(self) -> list[str]:
        """Every node after those that it comes after."""
        return [name for column in self.columns for name in column]


def layers_of(nodes: Mapping[str, NodeInfo]) -> Layers:
    """Put each node into the column that is its longest distance from a first node."""
    before = {name: _before(node, nodes) for name, node in nodes.items()}
    after: dict[str, list[str]] = {name: [] for name in nodes}
    for name, names in before.items():
        for one in names:
            after[one].append(name)
    column = _distances(before, after)
    last = max(column.values(), default=0)
    columns: list[list[str]] = [[] for _ in range(last + 1)]
    for name, node in nodes.items():
        # What runs only when the flow is cancelled comes after everything.
        columns[last if node.when == "on_cancel" else column[name]].append(name)
    return Layers(nodes, before, after, columns)


def _before(node: NodeInfo, nodes: Mapping[str, NodeInfo]) -> list[str]:
    names = [name for name in node.after if name in nodes]
    if node.added_by in nodes and node.added_by not in node.after:
        names.append(node.added_by)  # type: ignore[arg-type]  # None is no node's name
    return names


def _distances(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> dict[str, int]:
    """By going from the first nodes to the last. Nodes were not added in this order: a running node adds some before
    others that wait."""
    distance = dict.fromkeys(before, 0)
    left = {name: len(names) for name, names in before.items()}
    ready = [name for name, count in left.items() if not count]
    for name in ready:  # it grows while it is read
        for one in after[name]:
            distance[one] = max(distance[one], distance[name] + 1)
            left[one] -= 1
            if not left[one]:
                ready.append(one)
    return distance


class Chain(Struct, frozen=True):
    """Nodes that followed each other. `took` is in seconds; `since`: the last one still runs, and it is as if the whole
    had begun then."""

    names: tuple[str, ...] = ()
    took: float = 0.0
    since: int | None = None


def critical_path(layers: Layers, now: int) -> Chain:
    """The chain of nodes, each started after the one before it had ended, that took longest so far."""
    took: dict[str, int] = {}
    came_from: dict[str, str] = {}
    for name in layers.in_order():
        node = layers.nodes[name]
        if node.started_at is None:
            continue
        took[name] = max(0, (node.ended_at or now) - node.started_at)
        earlier = [one for one in layers.before[name] if one in took and _led_to(layers.nodes[one], node)]
        if earlier:
            came_from[name] = max(earlier, key=took.__getitem__)
            took[name] += took[came_from[name]]
    if not took:
        return Chain()
    at = last = max(took, key=took.__getitem__)
    path = [at]
    while at in came_from:
        at = came_from[at]
        path.append(at)
    since = now - took[last] if layers.nodes[last].ended_at is None else None
    return Chain(tuple(reversed(path)), took[last] / 1000, since)


def _led_to(before: NodeInfo, node: NodeInfo) -> bool:
    """Whether a node could not start before another had ended; `any_dead` did not wait for what is done."""
    if before.ended_at is None or node.started_at is None or (node.when == "any_dead" and before.state != "dead"):
        return False
    return before.ended_at <= node.started_at
