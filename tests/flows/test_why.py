"""Why a node is not running: a sentence, worked out from the graph alone."""

import pytest
from msgspec.structs import replace

from accoda.flows.graph import FlowGraph, NodeSpec
from accoda.flows.model import When
from accoda.flows.why import explain, reason_of
from accoda.model import JobInfo, Report

JOB = JobInfo(7, "queue", "taken", b"", 0.0, 0, None, 0, 0, 0, None, 0, taken_at=96_000)
ENDS = {"done", "dead", "cancelled", "removed"}


def why(when: When, *before: str, stopped: bool = False) -> str:
    """What is said of a node after others, each of which is named by its state and a number."""
    graph = FlowGraph()
    graph.add([NodeSpec("fine"), NodeSpec("slow")], None, 1)
    for name in before:
        state = name.split("-")[0]
        if state == "skipped":
            graph.add([NodeSpec(name, after=("fine",), when="any_dead")], None, 1)
        else:
            graph.add([NodeSpec(name, after=("slow",) if state == "waiting" else ())], None, 1)
    graph.add([NodeSpec("node", after=before, when=when)], None, 1)
    graph.start(list(graph.startable), 1)
    for name in ("fine", *before):
        state = "done" if name == "fine" else name.split("-")[0]
        if state in ENDS:
            report = Report.of(state, len(name), 0, 1, name, b"Traceback\nout of stock" if state == "dead" else None)  # type: ignore[arg-type]
            graph.report(report, name, 1)
    if stopped:
        graph.stop("cancelled", 1)
    live = {"running": JOB, "ready": replace(JOB, state="ready")}
    jobs = {name: live[state] for name in before if (state := name.split("-")[0]) in live}
    return explain(graph, graph.by_name["node"], jobs, 100_000, reason_of)


@pytest.mark.parametrize(
    ("when", "before", "line"),
    [
        ("all_done", "done ready-1 running-2", "waits for 2 of 3: ready-1 (ready), running-2 (running 4 s)"),
        ("all_done", "started-1 waiting-2", "waits for 2 of 2: started-1 (started), waiting-2 (waiting)"),
        ("all_ended", "done dead-1 running-2", "waits for 1 of 3: running-2 (running 4 s)"),
        ("any_done", "ready", "waits for this to be done: ready (ready)"),
        (
            "any_done",
            "dead-1 running-2",
            "waits for one of 2 to be done: dead-1 (dead: out of stock), running-2 (running 4 s)",
        ),
        ("any_dead", "done running", "waits for one of 2 to be dead: done (done), running (running 4 s)"),
        (
            "all_done",
            "done-1 done-2 running-3 dead-4",
            "waits for 2 of 4: running-3 (running 4 s), dead-4 (dead: out of stock); "
            "it is skipped unless dead-4 is revived",
        ),
        (
            "all_done",
            "dead-1 dead-2",
            "waits for 2 of 2: dead-1 (dead: out of stock), dead-2 (dead: out of stock); "
            "it is skipped unless the dead ones are revived",
        ),
        (
            "any_done",
            "dead-1 dead-2 removed",
            "waits for one of 3 to be done: dead-1 (dead: out of stock), dead-2 (dead: out of stock), "
            "removed (removed); "
            "it is skipped unless one of the dead is revived",
        ),
        ("all_done", "skipped", "is skipped: it needs this to be done: skipped (skipped)"),
        (
            "all_done",
            "done dead removed running",
            "is skipped: it needs all of 4 to be done: dead (dead: out of stock), removed (removed)",
        ),
        (
            "any_done",
            "cancelled removed",
            "is skipped: it needs one of 2 to be done: cancelled (cancelled), removed (removed)",
        ),
        ("any_dead", "done", "is skipped: it needs this to be dead: done (done)"),
    ],
)
def test_a_node_says_what_it_waits_for(when: When, before: str, line: str) -> None:
    assert why(when, *before.split()) == line


def test_of_many_those_that_ended_badly_are_named_first_then_those_that_run() -> None:
    waiting = [f"waiting-{number}" for number in range(1000)]
    assert why("all_done", *waiting, "running", "dead") == (
        "waits for 1,002 of 1,002: dead (dead: out of stock), running (running 4 s), waiting-0 (waiting), "
        "waiting-1 (waiting), waiting-2 (waiting) and 997 more; it is skipped unless dead is revived"
    )


def test_a_dead_node_says_why() -> None:
    graph = FlowGraph()
    graph.add([NodeSpec("node")], None, 1)
    graph.start([0], 1)
    graph.report(Report.of("dead", 7, 0, 1, "node", b"Traceback\nout of stock"), "node", 1)
    assert explain(graph, graph.nodes[0], {}, 1, reason_of) == "is dead: out of stock"


def test_a_node_of_a_stopped_flow_is_not_said_to_go_on() -> None:
    assert why("all_done", "dead", stopped=True) == "is skipped: it needs this to be done: dead (dead: out of stock)"
    assert why("all_done", "running", stopped=True) == "is cancelled"
