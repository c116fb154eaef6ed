"""How the graph of a flow is drawn: columns, the critical path, folding, and where lines go."""

import re
from typing import Any

import pytest

from accoda.dashboard.graph.drawing import SIGNS, WHEN, draw
from accoda.dashboard.graph.folding import MOST_BOXES, MOST_LINES, fold
from accoda.dashboard.graph.layers import critical_path, layers_of
from accoda.dashboard.graph.placing import HEIGHT, WIDTH, place
from accoda.dashboard.pages.flows import NODE_STATES
from accoda.flows.model import WHENS, NodeInfo

Nodes = dict[str, NodeInfo]


def nodes_of(*given: tuple[str, str] | tuple[str, str, dict[str, Any]]) -> Nodes:
    """Nodes by name, each with the names of those that it comes after, in one text."""
    made = {}
    for name, after, *more in given:
        fields: dict[str, Any] = {"state": "done", "queue": "q", **(more[0] if more else {})}
        made[name] = NodeInfo(name=name, after=tuple(after.split()), **fields)
    return made


def ran(begin: int, end: int | None) -> dict[str, Any]:
    return {"started_at": begin * 1000, "ended_at": None if end is None else end * 1000}


def test_a_column_is_the_longest_distance_from_a_first_node() -> None:
    layers = layers_of(nodes_of(("c", "a b"), ("a", ""), ("b", "a"), ("d", "a")))
    assert layers.columns == [["a"], ["b", "d"], ["c"]]


def test_what_a_node_added_comes_after_it_and_what_is_for_a_cancelled_flow_comes_last() -> None:
    layers = layers_of(
        nodes_of(("a", ""), ("undo", "", {"when": "on_cancel"}), ("new", "", {"added_by": "a"}), ("b", "a new"))
    )
    assert layers.columns == [["a"], ["new"], ["undo", "b"]]


def test_the_critical_path_is_the_chain_that_took_longest() -> None:
    nodes = nodes_of(
        ("a", "", ran(0, 2)), ("b", "a", ran(2, 9)), ("c", "a", ran(2, 3)), ("d", "b c", ran(9, 10)), ("e", "d")
    )
    chain = critical_path(layers_of(nodes), 10_000)
    assert (chain.names, chain.took, chain.since) == (("a", "b", "d"), 10.0, None)


def test_the_critical_path_of_a_flow_that_runs_grows_with_its_last_node() -> None:
    layers = layers_of(nodes_of(("a", "", ran(0, 2)), ("b", "a", {**ran(5, None), "state": "running"})))
    assert critical_path(layers, 6_000).names == ("a", "b")
    assert critical_path(layers, 6_000).since == critical_path(layers, 60_000).since == 3_000


def test_a_node_that_did_not_wait_for_another_is_not_behind_it_on_the_critical_path() -> None:
    nodes = nodes_of(("slow", "", ran(0, 90)), ("quick", "", ran(0, 1)), ("first", "slow quick", ran(1, 95)))
    assert critical_path(layers_of(nodes), 99_000).names == ("quick", "first")
    refund = nodes_of(
        ("paid", "", ran(0, 5)),
        ("lost", "", {**ran(0, 4), "state": "dead"}),
        ("refund", "paid lost", {**ran(5, 9), "when": "any_dead"}),
    )
    assert critical_path(layers_of(refund), 9_000).names == ("lost", "refund")
    assert critical_path(layers_of(nodes_of(("a", ""))), 0).names == ()


def test_few_dead_nodes_among_many_stay_single() -> None:
    many = [(f"part-{n}", "a", {"state": "dead"} if n in (5, 50) else {}) for n in range(100)]
    folded, _ = fold(layers_of(nodes_of(("a", ""), *many)))
    assert sorted(len(box.nodes) for box in folded.boxes) == [1, 1, 1, 98]
    assert len(folded.lines) == 3


@pytest.mark.parametrize("wide", [1, 50])
def test_a_drawing_is_never_too_large(wide: int) -> None:
    """Chains beside each other that share nothing, and columns in which every node comes after every other."""
    chains = nodes_of(*((f"{n}-{step}", f"{n}-{step - 1}" if step else "") for n in range(300) for step in range(5)))
    dense = nodes_of(
        *(
            (f"{column}-{n}", " ".join(f"{column - 1}-{one}" for one in range(wide) if one != n) if column else "")
            for column in range(600 // wide)
            for n in range(wide)
        )
    )
    for nodes in (chains, dense):
        folded, _ = fold(layers_of(nodes))
        assert 0 < len(folded.boxes) <= MOST_BOXES and len(folded.lines) <= MOST_LINES


def test_no_boxes_overlap_and_a_line_over_several_columns_passes_beside_the_boxes_between() -> None:
    folded, _ = fold(layers_of(nodes_of(("a", ""), ("b", "a"), ("c", "b"), ("d", "a c"), ("e", "a"))))
    placed = place(folded)
    corners = placed.boxes
    for n, (x, y) in enumerate(corners):
        assert 0 < x < x + WIDTH < placed.width and 0 < y < y + HEIGHT < placed.height
        assert all(x != other_x or abs(y - other_y) > HEIGHT for other_x, other_y in corners[n + 1 :])
    a, d = folded.of["a"], folded.of["d"]
    straight = [float(y) for y in re.findall(r" ([\d.]+)h", placed.paths[a, d])]
    assert len(straight) == 2
    for name, at in zip(("b", "c"), straight, strict=True):
        top = corners[folded.of[name]][1]
        assert not top <= at <= top + HEIGHT


def test_every_state_has_a_sign_and_every_condition_words() -> None:
    assert set(SIGNS) == set(NODE_STATES) and len(set(SIGNS.values())) >= len(SIGNS) - 1
    assert set(WHEN) == {*WHENS, "on_cancel"}


def test_an_empty_flow_is_an_empty_drawing() -> None:
    assert draw({}, 0).boxes == []


def test_long_names_are_cut_and_names_in_common_name_a_box() -> None:
    drawing = draw(nodes_of(("x" * 200, "")), 0)
    assert len(drawing.boxes[0].title) == 26 and "x" * 200 in drawing.boxes[0].tip
    assert draw(nodes_of(*((f"load-{n}", "") for n in range(61))), 0).boxes[0].title == "load ×61"
    assert draw(nodes_of(*((f"{n}", "") for n in range(61))), 0).boxes[0].title == "nodes ×61"
