"""`accoda flows`, `accoda flow` and `accoda why FLOW/NODE`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_flows import FILES, build_flows, finish, move
from cli_world import World, visit

from accoda import App
from accoda.cli.draw import columns_of
from accoda.cli.flow_tree import FOLDED, SHOWN, draw_tree
from accoda.cli.flows import STATES
from accoda.flows.model import FLOW_STATES
from accoda.operations.flows import NodeView


@pytest.fixture(scope="module")
def shop(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_flows(prepared, tmp_path_factory.mktemp("flows") / "shop")


@pytest.fixture
def world(shop: Path, tmp_path: Path) -> Iterator[World]:
    with visit(shop, tmp_path / "shop") as world:
        yield world


def test_the_list_has_every_flow_with_what_needs_attention_first(world: World) -> None:
    lines = world.run("flows").output.splitlines()
    assert [line.split()[0] for line in lines] == ["id", "order-17", "import-2030", "mailing-1", "night-31"]
    assert lines[1].split()[2:6] == ["failed", "8", "of", "8"]
    assert "running, open" in lines[3]
    assert lines[4].endswith("in 57 min"), "its deadline"


def test_the_list_is_filtered_by_state_and_name_and_comes_in_pages(world: World) -> None:
    found = json.loads(world.run("flows", "--state", "running", "--name", "import", "--json").output)
    assert [flow["id"] for flow in found["items"]] == ["import-2030"]
    assert (found["items"][0]["ended"], found["items"][0]["total"], found["next"]) == (297, 300, None)
    ids, cursor = [], ()
    while True:
        page = json.loads(world.run("flows", "--limit", "1", "--json", *cursor).output)
        ids += [flow["id"] for flow in page["items"]]
        if page["next"] is None:
            break
        cursor = ("--cursor", page["next"])
    assert ids == ["order-17", "import-2030", "mailing-1", "night-31"]
    assert "add --cursor" in world.run("flows", "--limit", "1").output


def test_a_filter_that_matches_nothing_ends_with_1(world: World) -> None:
    result = world.run("flows", "--name", "nothing")
    assert (result.exit_code, result.output) == (1, "No flow matches.\n")


def test_a_state_that_is_none_is_refused_with_the_states_that_there_are(world: World) -> None:
    result = world.run("flows", "--state", "faild")
    assert result.exit_code == 2
    assert all(state in result.output for state in FLOW_STATES)
    assert STATES == FLOW_STATES


def test_a_store_without_flows_says_so(prepared: Path, tmp_path: Path) -> None:
    with visit(prepared, tmp_path / "other") as world:
        result = world.run("flows")
    assert (result.exit_code, result.output) == (0, "There are none.\n")


def test_the_graph_has_each_node_once_below_one_that_it_comes_after(world: World) -> None:
    lines = world.run("flow", "order-17").output.splitlines()
    assert lines[0] == "flow order-17: order"
    drawn = lines[lines.index("") + 2 : lines.index("", lines.index("") + 1)]
    assert [line.split("  ")[0] for line in drawn[:5]] == [
        "charge",
        "├─ reserve-1",
        "├─ reserve-2",
        "├─ reserve-3",
        "├─ reserve-4",
    ]
    assert drawn[4].split()[2:4] == ["dead", "25"]
    assert "LookupError: out of stock" in drawn[4], "why it is dead"
    assert drawn[5].startswith("│  ├─ ship") and "also after reserve-1 and 2 more" in drawn[5]
    assert drawn[6].startswith("│  └─ refund") and "any_dead" in drawn[6]
    assert drawn[7].startswith("└─ thank") and len(drawn) == 8
    assert "accoda flows retry order-17" in lines[-1]


def test_of_hundreds_of_nodes_a_few_are_drawn_and_the_others_counted(world: World) -> None:
    text = world.run("flow", "import-2030").output
    assert f"├─ … {FILES - 2 - SHOWN} more done" in text
    assert "↓ sum" in text and "also after load-1 and 296 more" in text
    assert len(text.splitlines()) < 20
    assert all(columns_of(line) <= 80 for line in text.splitlines())
    every = world.run("flow", "import-2030", "--all").output
    assert len([line for line in every.splitlines() if "load-" in line]) == FILES + 1, "and sum names some"
    assert all(columns_of(line) <= 80 for line in every.splitlines())


def test_json_has_the_whole_flow(world: World) -> None:
    found = json.loads(world.run("flow", "order-17", "--json").output)
    nodes = {node["name"]: node for node in found["nodes"]}
    assert (found["state"], found["counts"]) == ("failed", {"done": 6, "dead": 1, "skipped": 1})
    assert (nodes["ship"]["after"], nodes["ship"]["jobId"]) == ([f"reserve-{n}" for n in range(1, 5)], None)
    assert nodes["charge"]["result"] == {"ok": 17}


def test_an_unknown_flow_is_told_with_what_may_be_meant(world: World) -> None:
    for words in (("flow", "ordr-17"), ("flows", "cancel", "ordr-17"), ("why", "ordr-17/ship")):
        result = world.run(*words)
        assert result.exit_code == 1
        assert "did you mean order-17?" in result.output
    assert "accoda flows lists all of them" in world.run("flow", "x").output
    assert world.run("flow", "a\x00b").exit_code == 1


def test_retry_lets_a_failed_flow_go_on(world: World) -> None:
    assert world.run("flows", "retry", "order-17").output == "1 dead job of order-17 is ready to run.\n"

    async def go_on(app: App) -> str:
        await move(app)
        await finish(app, world.clock, "stock", 1.0)
        await finish(app, world.clock, "parcels", 1.0)
        return (await app.flows.get("order-17")).state

    assert world.store(go_on) == "done"
    result = world.run("flows", "retry", "order-17")
    assert (result.exit_code, "has no dead job" in result.output) == (1, True)


def test_the_dead_job_of_a_flow_goes_on_after_a_replay_of_dead_letters(world: World) -> None:
    assert world.run("dead", "replay", "--queue", "stock", "--yes").exit_code == 0

    async def state(app: App) -> str:
        await move(app)
        return (await app.flows.get("order-17")).state

    assert world.store(state) == "running"


def test_a_flow_ends_and_does_not_wait_for_a_member_that_was_purged(world: World) -> None:
    assert world.run("queues", "loads", "purge", "--state", "ready", "--yes").exit_code == 0

    async def ended(app: App) -> tuple[str, dict[str, int]]:
        await move(app)
        flow = await app.flows.get("import-2030")
        return flow.state, flow.counts

    assert world.store(ended) == ("failed", {"done": 297, "removed": 2, "skipped": 1})


def test_cancel_stops_a_flow_that_runs(world: World) -> None:
    assert world.run("flows", "cancel", "import-2030").output == (
        "import-2030 is being cancelled; 297 of 300 had ended.\n"
    )

    async def state(app: App) -> str:
        await move(app)
        world.clock.advance(1)
        await move(app)
        return (await app.flows.get("import-2030")).state

    assert world.store(state) == "cancelled"
    result = world.run("flows", "cancel", "import-2030")
    assert (result.exit_code, "only one that runs" in result.output) == (1, True)


def test_close_ends_a_batch_whose_producer_died(world: World) -> None:
    assert "accoda flows close mailing-1" in world.run("flow", "mailing-1").output
    assert world.run("flows", "close", "mailing-1").exit_code == 0

    async def state(app: App) -> str:
        await move(app)
        return (await app.flows.get("mailing-1")).state

    assert world.store(state) == "done"
    assert world.run("flows", "close", "mailing-1").exit_code == 1


def test_why_of_a_node_says_what_it_waits_for(world: World) -> None:
    assert world.run("why", "import-2030/sum").output == (
        "sum of flow import-2030 waits for 2 of 298: load-297 (ready), load-298 (ready)\n"
    )
    assert "reserve-4 (dead: " in world.run("why", "order-17/ship").output
    told = json.loads(world.run("why", "order-17/ship", "--json").output)
    assert (told["flow"], told["node"], told["state"]) == ("order-17", "ship", "skipped")


def test_why_of_a_node_whose_job_is_stored_is_that_of_the_job_which_names_its_flow(world: World) -> None:
    text = world.run("why", "import-2030/load-298").output
    assert text.startswith("job 332 of loads (ready):")
    assert "flow      import-2030, node load-298" in text
    assert world.run("why", "332").output == text


def test_why_of_what_is_neither_a_job_nor_a_node(world: World) -> None:
    result = world.run("why", "order-17/packing")
    assert (result.exit_code, "accoda flow order-17 lists" in result.output) == (1, True)
    assert world.run("why", "order-17").exit_code == 2


def test_a_job_names_its_flow(world: World) -> None:
    assert "flow         order-17, node reserve-4" in world.run("job", "25").output
    told = json.loads(world.run("job", "25", "--json").output)
    assert (told["flow"], told["node"]) == ("order-17", "reserve-4")


def test_the_queues_of_flows_are_hidden_and_not_called_late(world: World) -> None:
    assert "accoda.flows" not in world.run("queues").output
    assert "accoda.flows" not in world.run("top", "--once").output
    assert "accoda.flows" not in world.run("jobs", "--state", "delayed").output
    assert "accoda.flows.log" in world.run("queues", "--all").output


# -- the tree


def node(name: str, *after: str, state: str = "done", **more: object) -> NodeView:
    return NodeView(name=name, state=state, queue="q", after=[*after], **more)  # type: ignore[arg-type]


def drawn(*nodes: NodeView, fold: bool = True) -> list[str]:
    lines = draw_tree(nodes, fold=fold)
    return [f"{line.lead}{line.node.name if line.node else f'… {line.left_out} more {line.state}'}" for line in lines]


def test_a_chain_takes_no_width() -> None:
    assert drawn(node("a"), node("b", "a"), node("c", "b")) == ["a", "↓ b", "↓ c"]


def test_a_long_chain_of_links_that_are_alike_is_folded() -> None:
    chain = [node("step-1"), *(node(f"step-{n}", f"step-{n - 1}") for n in range(2, 301))]
    assert drawn(*chain) == ["step-1", "↓ … 298 more done", "↓ step-300"]
    assert len(drawn(*chain, fold=False)) == 300


def test_a_hundred_thousand_nodes_one_after_the_other_are_drawn_without_recursion() -> None:
    chain = [node("n0"), *(node(f"n{n}", f"n{n - 1}", state="done" if n % 2 else "dead") for n in range(1, 100_000))]
    assert len(drawn(*chain)) == 100_000


def test_branches_that_are_alike_all_the_way_down_are_folded() -> None:
    many = [one for n in range(20) for one in (node(f"a{n}"), node(f"b{n}", f"a{n}"))]
    assert drawn(*many) == ["a0", "↓ b0", "a1", "↓ b1", "a2", "↓ b2", "… 17 more done"]
    few = [node(f"a{n}") for n in range(FOLDED - 1)]
    assert len(drawn(*few)) == len(few)


def test_nodes_in_another_state_are_drawn_beside_those_that_are_folded() -> None:
    many = [node(f"a{n}", state="dead" if n == 50 else "done") for n in range(100)]
    assert drawn(*many) == ["a0", "a1", "a2", "… 96 more done", "a50"]


def test_dead_nodes_of_one_cause_are_alike() -> None:
    many = [node(f"a{n}", state="dead", error=f"TimeoutError: no answer from 10.0.0.{n}") for n in range(50)]
    assert drawn(*many)[-1] == "… 47 more dead"


def test_a_node_that_was_added_at_run_time_is_below_the_one_that_added_it() -> None:
    nodes = (node("split"), node("join", "split", "split.page"), node("split.page", added_by="split"))
    assert drawn(*nodes) == ["split", "↓ split.page", "↓ join"]


def test_what_is_very_deep_is_not_indented_further() -> None:
    nodes, last = [node("n0")], "n0"
    for n in range(1, 60):
        nodes += [node(f"n{n}", last), node(f"m{n}", last)]
        last = f"n{n}"
    assert max(columns_of(line) for line in drawn(*nodes, fold=False)) < 40
