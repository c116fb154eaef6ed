"""What cannot be a flow is refused before anything is stored, with what to do instead."""

from dataclasses import dataclass
from typing import Any

import pytest

from accoda import App, InvalidInput, TooLarge, chain, group
from accoda.flows import nodes as building


@dataclass
class Order:
    number: int


app = App("memory://")


@app.handler
async def charge(order: Order) -> None: ...


@app.handler("work", type="ship")
async def ship(order: Order) -> None: ...


@app.handler
async def report(name: str) -> None: ...


def refused(**more: Any) -> str:
    """What is said to a node that is added after the node `first`."""
    flow = app.flow("order")
    flow.add(charge, Order(1), name="first")
    handler, payload = more.pop("handler", charge), more.pop("payload", Order(2))
    with pytest.raises(InvalidInput) as told:
        flow.add(handler, payload, **more)
    assert len(flow.nodes.specs) == 1
    return str(told.value)


LABEL = "must be 1 to 200 characters, none a control character or '/', not"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "me", "after": "me"}, "after: node 'me' cannot come after itself: that is a cycle"),
        (
            {"name": "x", "after": "later"},
            "after: node 'x': there is no node 'later' before it; nodes come after earlier ones, so add that one first",
        ),
        ({"name": "x", "after": 3}, "after: node 'x': must be nodes or their names, not 3"),
        ({"name": "x", "after": None}, "after: node 'x': must be nodes or their names, not None"),
        ({"name": "x", "after": [["first"]]}, "after: node 'x': there is no node ['first'] before it"),
        ({"name": "first"}, "name: the flow has a node 'first' already; give this one another name"),
        ({"name": "a/b"}, f"name: {LABEL} 'a/b'"),
        ({"name": ""}, f"name: {LABEL} ''"),
        ({"name": "a\n"}, f"name: {LABEL} 'a\\n'"),
        ({"name": "\ud800"}, f"name: {LABEL}"),
        ({"name": "n" * 201}, f"name: {LABEL} 'nnn"),
        ({"name": 7}, f"name: {LABEL} 7"),
        ({"when": "any_dead"}, "when: node 'charge': any_dead needs nodes before it; name them with after=…"),
        ({"when": "any_done"}, "when: node 'charge': any_done needs nodes before it; name them with after=…"),
        ({"when": "some"}, "when: node 'charge': must be one of all_done, all_ended, any_done, any_dead, not 'some'"),
        ({"key": "k"}, "key: node 'charge': the job of a node has a key of its own, so it takes no key"),
        ({"on_duplicate": "keep"}, "so it takes no on_duplicate"),
        ({"waiter": b"w"}, "so it takes no waiter"),
        ({"prio": 1}, "prio: node 'charge': there is no such option; use priority, delay, at, cost, keep_for, type,"),
        ({"afer": "first"}, "webhook, lane; flow.add also takes name, after and when"),
        ({"detached": True}, "detached: node 'charge': there is no such option"),
        ({"priority": "wild"}, "node 'charge': priority: must be one of CRITICAL, HIGH, NORMAL, LOW, not 'wild'"),
        ({"handler": ship, "type": "other"}, "type: node 'ship': its handler is for jobs of type 'ship'"),
        ({"handler": print}, "handler: must be a handler, a (queue, type) or a queue, not <built-in function print>"),
        ({"handler": None}, "handler: must be a handler, a (queue, type) or a queue, not None"),
        ({"handler": "no such!"}, "node 'no such!': queue: must be 1 to 128 letters"),
        ({"payload": 17, "name": "x"}, "node 'x': payload: does not fit Order: it must be a dict of fields"),
        ({"payload": Order("x"), "name": "x"}, "node 'x': payload: does not fit Order: number must be an integer"),  # type: ignore[arg-type]
    ],
)
def test_a_node_that_could_not_run_is_refused(given: dict[str, Any], message: str) -> None:
    told = refused(**given)
    assert told.startswith(message) or told.endswith(message), told


def test_a_payload_that_is_too_large_names_its_node() -> None:
    flow = app.flow("order")
    with pytest.raises(TooLarge, match="node 'x': payload: has 300,005 bytes"):
        flow.add("reports", "x" * 300_000, name="x")


def test_one_payload_of_a_map_names_its_node() -> None:
    with pytest.raises(InvalidInput, match="node 'page-2': payload: does not fit Order"):
        app.flow("order").map(charge, [Order(1), 2], name="page")


def test_a_node_of_another_flow_is_refused() -> None:
    other = app.flow("other").add(charge, Order(1))
    with pytest.raises(InvalidInput, match="node 'x': <node charge> is not of this flow"):
        app.flow("order").add(charge, Order(1), name="x", after=[other])


async def test_a_flow_without_nodes_is_refused() -> None:
    with pytest.raises(InvalidInput, match="nodes: the flow 'order' has none; add some first"):
        await app.flow("order").start()


async def test_a_flow_that_has_nothing_to_run_unless_it_is_cancelled_is_refused() -> None:
    flow = app.flow("order")
    flow.on_cancel(charge, Order(1))
    with pytest.raises(InvalidInput, match="nodes: all those of the flow 'order' are for on_cancel; add what it is to"):
        await flow.start()


def test_nothing_comes_after_a_node_for_on_cancel() -> None:
    flow = app.flow("order")
    undo = flow.on_cancel(charge, Order(1), name="undo")
    for after in (undo, "undo"):
        with pytest.raises(InvalidInput, match="node 'x' cannot come after 'undo', which runs only if the flow is can"):
            flow.add(charge, Order(1), name="x", after=after)


async def test_a_node_that_is_added_after_the_start_is_refused() -> None:
    flow = app.flow("order")
    flow.add(charge, Order(1))
    async with app:
        await flow.start()
        for add in (flow.add, flow.on_cancel):
            with pytest.raises(InvalidInput, match="node 'charge-2': the flow was started already; a node of it adds"):
                add(charge, Order(1))
        await flow.start()  # again, because the first answer was lost: nothing happens


def test_too_many_nodes_or_pairs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "NODES", 3)
    flow = app.flow("order")
    nodes = flow.map(charge, [Order(1)] * 3)
    with pytest.raises(
        InvalidInput, match="nodes: node 'charge': a flow has at most 3; split it, or let a node enqueue plain jobs"
    ):
        flow.add(charge, Order(1))
    monkeypatch.setattr(building, "NODES", 10)
    monkeypatch.setattr(building, "EDGES", 2)
    with pytest.raises(InvalidInput, match="node 'x': a flow has at most 2 pairs; put a node between them"):
        flow.add(charge, Order(1), name="x", after=nodes)
    flow.add(charge, Order(1), name="x", after=nodes[:2])  # what was refused does not count


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "a/b"}, f"name: {LABEL} 'a/b'"),
        ({"key": ""}, f"key: {LABEL} ''"),
        ({"key": "k" * 201}, f"key: {LABEL}"),
        ({"deadline": -1}, "deadline: must be a number of seconds >= 0, not -1"),
        ({"deadline": "soon"}, "deadline: must be a number of seconds >= 0, not 'soon'"),
        ({"keep_for": -1}, "keep_for: must be a number of seconds >= 0, not -1"),
    ],
)
def test_options_of_a_flow_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as told:
        app.flow(options.pop("name", "order"), **options)
    assert str(told.value).startswith(message)


def test_what_is_no_job_cannot_be_in_a_chain_or_group() -> None:
    made: Any = charge
    with pytest.raises(InvalidInput, match="chain: needs at least one job: handler"):
        chain()
    with pytest.raises(InvalidInput, match=r"group: is made of handler\.job"):
        group(made)
    with pytest.raises(InvalidInput, match="node 'charge': payload: does not fit Order"):
        chain(charge.job(3)).flow()  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="so it takes no key"):
        chain(charge.job(Order(1), key="k")).flow()  # type: ignore[call-arg]


def test_what_runs_at_the_end_of_a_batch_must_take_its_name() -> None:
    with pytest.raises(InvalidInput, match="node 'on_done': payload: does not fit Order"):
        app.batch("import", on_done=charge)
    with pytest.raises(InvalidInput, match="handler: must be a handler"):
        app.batch("import", on_done=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="node '1': numbers are the names of the members; give it another name"):
        app.batch("import", on_done=report.job("import", name="1"))
    app.batch("import", on_done=report)
