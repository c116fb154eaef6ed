"""Flows as a user sees them: what starts when, what results are where, and how a flow ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
import pytest_asyncio

from accoda import (
    App,
    Batch,
    BuryJob,
    ById,
    FlowEnded,
    FlowInfo,
    FlowTimeout,
    Group,
    InvalidInput,
    NotFound,
    Remove,
    Revive,
    StorageUnavailable,
    Store,
    Worker,
    WorkerOptions,
    chain,
    chord,
    group,
)
from accoda.app_testing import Trial
from accoda.settings import Settings
from accoda.storage.wrapper import Wrapper


@dataclass
class Charge:
    order: int
    cents: int


class Shop:
    """An app whose handlers note what ran, and fail where they are told to."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.ran: list[str] = []
        self.broken: set[str] = set()
        self.seen: dict[str, dict[str, Any]] = {}
        self.say = app.add_handler("say", self._say, {})

    async def _say(self, what: str) -> str:
        self.ran.append(what)
        self.seen[what] = dict(self.app.current.parents)
        if what in self.broken:
            raise BuryJob(f"{what} is broken")
        return what.upper()

    def states(self, info: FlowInfo) -> dict[str, str]:
        return {name: node.state for name, node in info.nodes.items()}

    async def finish(self, id: str) -> FlowInfo:
        """Run what there is to run."""
        await self.app.run_until_idle()
        return await self.app.flows.get(id)


@pytest_asyncio.fixture
async def trial() -> AsyncIterator[Trial]:
    app = App("memory://")
    async with app, app.testing() as trial:
        yield trial


@pytest.fixture
def app(trial: Trial) -> App:
    assert isinstance(trial.app, App)
    return trial.app


@pytest.fixture
def shop(app: App) -> Shop:
    return Shop(app)


# -- start, order, results


async def test_nothing_is_stored_before_the_start_and_everything_runs_after_it(app: App, shop: Shop) -> None:
    flow = app.flow("order-17")
    charged = flow.add(shop.say, "charge", name="charge")
    parts = [flow.add(shop.say, f"reserve {n}", name=f"reserve-{n}", after=charged) for n in (1, 2)]
    flow.add(shop.say, "ship", name="ship", after=parts)
    await app.run_until_idle()
    assert shop.ran == [] and await app.flows.list() == []
    info = await flow.start()
    assert (info.id, info.state, info.counts) == (flow.id, "running", {"waiting": 4})
    done = await shop.finish(flow.id)
    assert shop.ran == ["charge", "reserve 1", "reserve 2", "ship"]
    assert (done.state, done.progress, set(shop.states(done).values())) == ("done", (4, 4), {"done"})
    assert shop.seen["ship"] == {"reserve-1": "RESERVE 1", "reserve-2": "RESERVE 2"}
    assert await app.flows.result(flow.id) == "SHIP"


async def test_a_node_may_have_several_parents_and_several_children(app: App, shop: Shop) -> None:
    flow = app.flow("diamonds")
    a, b = (flow.add(shop.say, name, name=name) for name in "ab")
    c = flow.add(shop.say, "c", name="c", after=[a, b])
    flow.add(shop.say, "d", name="d", after=["a", "b"])
    flow.add(shop.say, "e", name="e", after=(c, "d", "c", a))
    await flow.start()
    assert (await shop.finish(flow.id)).state == "done"
    assert sorted(shop.ran[:2]) == ["a", "b"] and sorted(shop.ran[2:4]) == ["c", "d"] and shop.ran[4:] == ["e"]
    assert shop.seen["e"] == {"c": "C", "d": "D", "a": "A"}


async def test_results_of_parents_have_the_type_that_is_asked_for(app: App) -> None:
    found: list[Any] = []

    @app.handler
    async def charge(order: int) -> Charge:
        return Charge(order, 900)

    @app.handler
    def ship() -> None:
        parents = app.current.parents
        found.extend([parents["charge"], parents.get("charge", type=Charge), parents.get("refund", "none", type=str)])
        assert list(parents) == ["charge"] and len(parents) == 1 and "refund" not in parents
        with pytest.raises(KeyError, match=r"no node 'refund' before this one is done; there are: charge"):
            parents["refund"]
        with pytest.raises(InvalidInput, match=r"the result of node 'charge' does not fit: .*must be .*list"):
            parents.get("charge", type=list[int])

    flow = app.flow("order")
    flow.add(charge, 17)
    flow.add(ship, after="charge")
    await flow.start()
    await app.run_until_idle()
    assert (await app.flows.get(flow.id)).state == "done"
    assert found == [{"order": 17, "cents": 900}, Charge(17, 900), "none"]


async def test_a_job_outside_of_a_flow_has_neither_parents_nor_a_flow(app: App) -> None:
    said: list[str] = []

    @app.handler
    async def alone() -> None:
        for ask in (lambda: app.current.parents, lambda: app.current.flow):
            with pytest.raises(InvalidInput) as told:
                ask()
            said.append(str(told.value))

    await alone.enqueue()
    await app.run_until_idle()
    assert "is in no flow, so there is no node before it" in said[0]
    assert "is in no flow; jobs of flows are added by app.flow(…).add(…)" in said[1]


@pytest.mark.parametrize("sizes", [[33_000], [30_000] * 4, [200_000, 10], [1_048_000]])
async def test_large_results_reach_the_nodes_after_them(app: App, sizes: list[int]) -> None:
    @app.handler
    async def make(size: int) -> str:
        return "x" * size

    @app.handler
    async def measure() -> list[int]:
        return [len(result) for result in app.current.parents.values()]

    flow = app.flow("large")
    flow.add(measure, after=flow.map(make, sizes))
    await flow.start()
    await app.run_until_idle()
    assert await app.flows.result(flow.id) == sizes
    assert [len(node.result) for name, node in (await app.flows.get(flow.id)).nodes.items() if name != "measure"] == (
        sizes
    )


async def test_a_result_that_no_document_can_hold_buries_its_job(app: App) -> None:
    @app.handler
    async def make() -> str:
        return "x" * 1_048_576  # with its head it is larger than a result may be

    flow = app.flow("too large")
    flow.add(make)
    await flow.start()
    await app.run_until_idle()
    node = (await app.flows.get(flow.id)).nodes["make"]
    assert node.state == "dead" and "result" in (node.error or "")


async def test_large_results_are_deleted_with_their_flow(app: App, trial: Trial) -> None:
    @app.handler
    async def make() -> str:
        return "x" * 100_000

    flow = app.flow("kept", keep_for=timedelta(hours=1))
    flow.add(make)
    await flow.start()
    await app.run_until_idle()
    assert len(await app.storage.documents("flow-results/")) == 1
    trial.advance(minutes=59)
    await app.run_until_idle()
    assert (await app.flows.get(flow.id)).state == "done"
    trial.advance(minutes=2)
    await app.run_until_idle()
    with pytest.raises(NotFound, match="it was never started, or it ended and was kept long enough"):
        await app.flows.get(flow.id)
    assert await app.storage.documents("flow-results/") == []


async def test_a_delay_counts_from_when_the_node_may_start(app: App, shop: Shop, trial: Trial) -> None:
    flow = app.flow("later")
    first = flow.add(shop.say, "a", name="a", delay=60)
    flow.add(shop.say, "b", name="b", after=first, delay=timedelta(minutes=1))
    await flow.start()
    for ran in ([], ["a"], ["a", "b"]):
        await app.run_until_idle()
        assert shop.ran == ran
        trial.advance(60)


async def test_nodes_are_named_after_their_handlers_unless_they_are_named(app: App, shop: Shop) -> None:
    @app.handler("letters")
    async def send(what: str) -> None: ...

    flow = app.flow("names")
    first = flow.add(send, "a")
    with pytest.raises(InvalidInput):
        flow.add(send, "refused", after="nobody")
    more = [flow.add(send, "b"), flow.add("letters", "c"), flow.add(("letters", "loud"), "d")]
    assert [node.name for node in (first, *more)] == ["send", "send-2", "letters", "loud"]
    assert [node.name for node in flow.map(send, "gh", name="page")] == ["page-1", "page-2"]
    assert repr(first) == "<node send>" and repr(flow) == "<flow names, 6 nodes>"


# -- when


@pytest.mark.parametrize(
    ("when", "one_is_dead", "both_are_dead", "none_is_dead"),
    [
        ("all_done", "skipped", "skipped", "done"),
        ("all_ended", "done", "done", "done"),
        ("any_done", "done", "skipped", "done"),
        ("any_dead", "done", "done", "skipped"),
    ],
)
async def test_when_says_what_a_node_needs(
    app: App, shop: Shop, when: Any, one_is_dead: str, both_are_dead: str, none_is_dead: str
) -> None:
    for broken, wanted in (("a", one_is_dead), ("ab", both_are_dead), ("", none_is_dead)):
        shop.broken = set(broken)
        flow = app.flow("when")
        flow.add(shop.say, "next", name="next", after=[flow.add(shop.say, name, name=name) for name in "ab"], when=when)
        await flow.start()
        assert (await shop.finish(flow.id)).nodes["next"].state == wanted, broken


async def test_any_done_does_not_wait_for_the_rest(app: App, shop: Shop) -> None:
    flow = app.flow("first wins")
    after = [flow.add(shop.say, "fast", name="fast"), flow.add(shop.say, "slow", name="slow", delay=60)]
    flow.add(shop.say, "next", name="next", after=after, when="any_done")
    await flow.start()
    info = await shop.finish(flow.id)
    assert shop.states(info) == {"fast": "done", "slow": "delayed", "next": "done"}
    assert info.state == "running"


async def test_what_comes_after_a_skipped_node_is_skipped_too(app: App, shop: Shop) -> None:
    shop.broken = {"a"}
    flow = app.flow("skipped")
    flow.add(shop.say, "a", name="a")
    flow.add(shop.say, "b", name="b", after="a")
    flow.add(shop.say, "c", name="c", after="b")
    flow.add(shop.say, "tidy", name="tidy", after="c", when="all_ended")
    await flow.start()
    info = await shop.finish(flow.id)
    assert shop.states(info) == {"a": "dead", "b": "skipped", "c": "skipped", "tidy": "done"}
    assert info.state == "failed"
    assert (
        await app.flows.why(flow.id, "b")
        == "waits for 1 of 1: a (dead: a is broken); it is skipped unless a is revived"
    )
    assert await app.flows.why(flow.id, "c") == "is skipped: it needs this to be done: b (skipped)"


async def test_a_failure_that_was_provided_for_is_none(app: App, shop: Shop) -> None:
    shop.broken = {"a"}
    flow = app.flow("provided for")
    flow.add(shop.say, "a", name="a")
    flow.add(shop.say, "tidy", name="tidy", after="a", when="all_ended")
    await flow.start()
    assert (await shop.finish(flow.id)).state == "done"
    assert await app.flows.result(flow.id) == "TIDY"


# -- nodes that are added at run time


async def test_a_node_adds_nodes_and_what_comes_after_it_waits_for_them(app: App) -> None:
    ran: list[Any] = []

    @app.handler
    async def split(pages: int) -> None:
        app.current.flow.map(page, range(pages), name="page")

    @app.handler
    async def page(number: int) -> int:
        if number == 1:  # a member adds members, for which the join waits too
            app.current.flow.add(page, 10, name="extra")
        return number

    @app.handler
    async def join() -> list[int]:
        ran.append(sorted(app.current.parents))
        return sorted(value for value in app.current.parents.values() if value is not None)

    flow = app.flow("pages")
    flow.add(join, after=flow.add(split, 3))
    await flow.start()
    await app.run_until_idle()
    assert await app.flows.result(flow.id) == [0, 1, 2, 10]
    assert ran == [["split", "split.page-1", "split.page-2", "split.page-2.extra", "split.page-3"]]
    info = await app.flows.get(flow.id)
    assert info.nodes["split.page-2.extra"].added_by == "split.page-2"


async def test_what_is_detached_is_not_waited_for_but_is_part_of_the_flow(app: App, shop: Shop) -> None:
    @app.handler
    async def first() -> None:
        app.current.flow.add(shop.say, "beside", name="beside", detached=True, delay=60)

    flow = app.flow("detached")
    flow.add(shop.say, "next", name="next", after=flow.add(first))
    await flow.start()
    info = await shop.finish(flow.id)
    assert shop.ran == ["next"]
    assert (info.state, info.nodes["first.beside"].state) == ("running", "delayed")


async def test_added_nodes_may_depend_on_each_other_and_an_unnamed_one_gets_a_name(app: App, shop: Shop) -> None:
    @app.handler
    async def plan() -> None:
        flow = app.current.flow
        parts = [flow.add("say", what) for what in ("a", "b")]
        assert [part.name for part in parts] == ["plan.say", "plan.say-2"]
        flow.add("say", "sum", name="sum", after=parts)

    flow = app.flow("planned")
    flow.add(plan)
    await flow.start()
    info = await shop.finish(flow.id)
    assert shop.ran[-1] == "sum" and info.nodes["plan.sum"].after == ("plan.say", "plan.say-2")


async def test_nodes_add_nodes_without_end(app: App) -> None:
    """Names begin with that of the node that adds them, and would be too long soon."""

    @app.handler
    async def page(number: int) -> int:
        if number < 200:
            app.current.flow.add(page, number + 1)
        return number

    @app.handler
    async def join() -> int:
        return len(app.current.parents)

    flow = app.flow("pages")
    flow.add(join, after=flow.add(page, 1))
    await flow.start()
    await app.run_until_idle()
    assert await app.flows.result(flow.id) == 200
    info = await app.flows.get(flow.id)
    assert info.progress == (201, 201) and max(map(len, info.nodes)) <= 200


async def test_a_run_that_fails_adds_nothing(app: App, shop: Shop, trial: Trial) -> None:
    @app.handler(retry=1)
    async def split() -> None:
        app.current.flow.add(shop.say, f"try {app.current.attempts}", name="part")
        if app.current.attempts == 0:
            raise ValueError("not yet")

    flow = app.flow("retried")
    flow.add(split)
    await flow.start()
    await app.run_until_idle()
    trial.advance(5)
    await app.run_until_idle()
    assert shop.ran == ["try 1"]


async def test_a_batch_handler_has_members_of_flows(app: App) -> None:
    @app.handler("rows", batch=10)
    async def rows(batch: Batch[int]) -> None:
        for job in batch:
            if job.payload < 10:
                job.flow.add(rows, job.payload * 10, name="ten")
            batch.done(job, result=job.payload + sum(job.parents.values()))

    flow = app.flow("rows")
    flow.add(rows, 100, name="sum", after=[flow.add(rows, 1, name="a"), flow.add(rows, 2, name="b")])
    await flow.start()
    await app.run_until_idle()
    assert await app.flows.result(flow.id) == 100 + 1 + 10 + 2 + 20


# -- chain, group, chord


async def test_a_chain_hands_results_on(app: App) -> None:
    @app.handler
    async def load(path: str) -> list[int]:
        return [len(path), 2]

    @app.handler
    async def parse(numbers: list[int]) -> int:
        return sum(numbers)

    @app.handler
    def save(total: int) -> str:
        return f"saved {total}, loaded {app.current.parents['parse']}"

    info = await chain(load.job("a.csv"), parse.job(), save.job()).start()
    await app.run_until_idle()
    assert await app.flows.result(info.id) == "saved 7, loaded 7"
    assert info.name == "chain" and list(info.nodes) == ["load", "parse", "save"]


async def test_after_a_group_the_next_part_gets_the_list(app: App) -> None:
    @app.handler
    async def one(n: int) -> int:
        return n

    @app.handler
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    assert chord is chain
    parts = group(one.job(1), chain(one.job(5), one.job(name="last of two")), one.job(3))
    info = await chord(parts, total.job()).start()
    await app.run_until_idle()
    assert await app.flows.result(info.id) == 9
    assert (await app.flows.get(info.id)).nodes["total"].after == ("one", "last of two", "one-3")
    single: Group = group(one.job(1), one.job(2))
    info = await single.start()
    await app.run_until_idle()
    assert (info.name, await app.flows.result(info.id)) == ("group", {"one": 1, "one-2": 2})


async def test_large_results_are_handed_on_by_a_chain_too(app: App) -> None:
    @app.handler
    async def make(size: int) -> str:
        return "x" * size

    @app.handler
    async def measure(texts: list[str]) -> list[int]:
        return [len(text) for text in texts]

    info = await chain(group(make.job(100_000), make.job(3), make.job(50_000)), measure.job()).start()
    await app.run_until_idle()
    assert await app.flows.result(info.id) == [100_000, 3, 50_000]


async def test_the_flow_of_a_chain_can_be_extended(app: App, shop: Shop) -> None:
    shop.broken = {"a"}
    flow = chain(shop.say.job("a", name="a"), shop.say.job("b", name="b")).flow("letters", key="letters-1")
    flow.add(shop.say, "sorry", name="sorry", after="a", when="any_dead")
    await flow.start()
    info = await shop.finish("letters-1")
    assert shop.states(info) == {"a": "dead", "b": "skipped", "sorry": "done"}


# -- failure and repair


async def test_a_revived_job_lets_the_flow_go_on_and_the_failure_branch_runs_once(app: App, shop: Shop) -> None:
    shop.broken = {"reserve"}
    flow = app.flow("order")
    flow.add(shop.say, "charge", name="charge")
    flow.add(shop.say, "reserve", name="reserve", after="charge")
    flow.add(shop.say, "ship", name="ship", after="reserve")
    flow.add(shop.say, "tell", name="tell", after="reserve", when="any_dead")
    await flow.start()
    info = await shop.finish(flow.id)
    assert (info.state, info.nodes["ship"].state) == ("failed", "skipped")
    with pytest.raises(
        FlowEnded, match=r"is failed: reserve is dead \(reserve is broken\)\. accoda flows retry"
    ) as told:
        await app.flows.result(flow.id)
    assert (told.value.id, told.value.state) == (flow.id, "failed")
    await app.flows.retry(flow.id)
    assert (await shop.finish(flow.id)).state == "failed"  # it is dead again
    shop.broken = set()
    job = info.nodes["reserve"].job_id
    assert job is not None and await app.storage.change([Revive(job)]) == 1
    info = await shop.finish(flow.id)
    assert (info.state, shop.states(info)["ship"]) == ("done", "done")
    assert shop.ran == ["charge", "reserve", "tell", "reserve", "reserve", "ship"]
    assert await app.flows.retry(flow.id) == 0


async def test_a_revived_job_took_as_long_as_its_last_run(app: App, shop: Shop, trial: Trial) -> None:
    shop.broken = {"a"}
    flow = app.flow("revived")
    flow.add(shop.say, "a", name="a")
    await flow.start()
    await app.run_until_idle()
    trial.advance(hours=1)
    shop.broken = set()
    await app.flows.retry(flow.id)
    node = (await shop.finish(flow.id)).nodes["a"]
    assert node.started_at == node.ended_at == app.now()


async def test_a_removed_or_purged_member_leaves_no_flow_waiting(app: App, shop: Shop) -> None:
    async def remove(info: FlowInfo) -> None:
        await app.storage.change([Remove(info.nodes["a"].job_id or 0)])

    async def purge(info: FlowInfo) -> None:
        await app.storage.purge("say", "delayed")

    async def cancel(info: FlowInfo) -> None:
        await app.cancel(info.nodes["a"].job_id or 0)

    ways: list[tuple[Callable[[FlowInfo], Any], str]] = [
        (remove, "removed"),
        (purge, "removed"),
        (cancel, "cancelled"),
    ]
    for way, state in ways:
        flow = app.flow("member")
        flow.add(shop.say, "b", name="b", after=flow.add(shop.say, "a", name="a", delay=60))
        flow.add(shop.say, "c", name="c", after="a", when="all_ended")
        flow.add(shop.say, "d", name="d", after="a", when="any_dead")
        await flow.start()
        await way(await shop.finish(flow.id))
        info = await shop.finish(flow.id)
        assert shop.states(info) == {"a": state, "b": "skipped", "c": "done", "d": "skipped"}
        assert info.state == "failed"
        with pytest.raises(FlowEnded, match=f"a is {state}$"):  # nothing is dead that could be revived
            await app.flows.result(flow.id)


async def test_removing_the_dead_job_of_a_failed_flow_lets_it_be_forgotten(app: App, shop: Shop, trial: Trial) -> None:
    shop.broken = {"a"}
    flow = app.flow("failed", keep_for=60)
    flow.add(shop.say, "b", after=flow.add(shop.say, "a", name="a"))
    await flow.start()
    info = await shop.finish(flow.id)
    trial.advance(days=30)
    assert (await shop.finish(flow.id)).state == "failed"  # it is kept as long as its dead job
    await app.storage.change([Remove(info.nodes["a"].job_id or 0)])
    await app.run_until_idle()
    assert await app.flows.list() == []


async def test_a_handler_is_told_which_parents_failed(app: App, shop: Shop) -> None:
    shop.broken = {"a"}

    @app.handler
    async def tidy() -> list[str]:
        info = await app.flows.get(app.current.flow.id)
        before = info.nodes[app.current.flow.node].after
        return [name for name in before if name not in app.current.parents]

    flow = app.flow("told")
    flow.add(tidy, after=[flow.add(shop.say, name, name=name) for name in "ab"], when="all_ended")
    await flow.start()
    await app.run_until_idle()
    assert await app.flows.result(flow.id) == ["a"]


# -- cancel, deadline, key


async def test_cancel_takes_back_what_waits_and_runs_on_cancel_once(app: App, shop: Shop) -> None:
    flow = app.flow("cancelled")
    flow.add(shop.say, "a", name="a")
    flow.add(shop.say, "c", name="c", after=flow.add(shop.say, "b", name="b", after="a", delay=60))
    flow.on_cancel(shop.say, "undo", name="undo")
    await flow.start()
    assert await app.flows.why(flow.id, "undo") == "runs only if the flow is cancelled or expires"
    await app.run_until_idle()
    assert await app.flows.cancel(flow.id) and await app.flows.cancel(flow.id)
    info = await shop.finish(flow.id)
    assert shop.states(info) == {"a": "done", "b": "cancelled", "c": "cancelled", "undo": "done"}
    assert (info.state, shop.ran) == ("cancelled", ["a", "undo"])
    assert not await app.flows.cancel(flow.id)
    with pytest.raises(FlowEnded, match="is cancelled: it was cancelled"):
        await app.flows.result(flow.id)
    with pytest.raises(NotFound):
        await app.flows.cancel("nobody")


async def test_on_cancel_does_not_run_when_the_flow_is_done(app: App, shop: Shop) -> None:
    flow = app.flow("done")
    flow.add(shop.say, "a", name="a")
    flow.on_cancel(shop.say, "undo", name="undo")
    await flow.start()
    info = await shop.finish(flow.id)
    assert (info.state, shop.states(info), info.counts) == ("done", {"a": "done", "undo": "skipped"}, {"done": 1})
    assert await app.flows.result(flow.id) == "A"


async def test_a_failure_branch_that_did_not_run_does_not_hide_the_result(app: App, shop: Shop) -> None:
    flow = app.flow("result")
    flow.add(shop.say, "a", name="a")
    flow.add(shop.say, "alert", name="alert", after="a", when="any_dead")
    await flow.start()
    info = await shop.finish(flow.id)
    assert (info.last, await app.flows.result(flow.id)) == (("a",), "A")


@pytest.mark.parametrize("as_moment", [False, True])
async def test_a_deadline_ends_a_flow(app: App, shop: Shop, trial: Trial, as_moment: bool) -> None:
    moment = datetime.fromtimestamp(app.now() / 1000, UTC) + timedelta(minutes=10)
    flow = app.flow("late", deadline=moment if as_moment else timedelta(minutes=10))
    flow.add(shop.say, "b", name="b", after=flow.add(shop.say, "a", name="a", delay=3600))
    flow.on_cancel(shop.say, "undo", name="undo")
    assert (await flow.start()).deadline == app.now() + 600_000
    trial.advance(minutes=9)
    assert (await shop.finish(flow.id)).state == "running"
    trial.advance(minutes=2)
    info = await shop.finish(flow.id)
    assert (info.state, shop.ran) == ("expired", ["undo"])
    with pytest.raises(FlowEnded, match="its deadline came before its end"):
        await app.flows.result(flow.id)


async def test_a_flow_with_a_key_is_started_once_also_by_two_at_once(app: App, shop: Shop) -> None:
    def flow(name: str) -> Any:
        made = app.flow(name, key="order-17")
        made.add(shop.say, name, name=name)
        return made

    told = await asyncio.gather(flow("one").start(), flow("two").start())
    assert told[0].name == told[1].name and told[0].id == told[1].id == "order-17"
    info = await shop.finish("order-17")
    assert shop.ran == [info.name] and list(info.nodes) == [info.name]
    assert (await flow("three").start()).name == info.name  # as long as it is kept
    await app.run_until_idle()
    assert shop.ran == [info.name]


async def test_a_key_is_free_again_when_its_flow_is_no_longer_kept(app: App, shop: Shop, trial: Trial) -> None:
    for _ in range(2):
        flow = app.flow("daily", key="daily", keep_for=60)
        flow.add(shop.say, "a")
        await flow.start()
        await app.run_until_idle()
        trial.advance(61)
        await app.run_until_idle()
    assert shop.ran == ["a", "a"]


# -- batches


async def test_a_batch_counts_its_members_and_runs_what_is_to_run_at_the_end(app: App, shop: Shop) -> None:
    async with app.batch("import-7", on_done=shop.say.job("done"), on_any_dead=shop.say.job("dead")) as batch:
        await batch.enqueue_many(shop.say, ["a", "b"])
        await batch.enqueue(shop.say, "c")
        await app.run_until_idle()
        info = await batch.info()
        assert (info.progress, info.open, info.state) == ((3, 3), True, "running")
        assert await app.flows.why(batch.id, "on_done") == "waits for the batch to be closed"
        assert shop.ran == ["a", "b", "c"]
    info = await shop.finish(batch.id)
    assert (info.state, info.open, info.progress) == ("done", False, (3, 3))
    assert shop.ran[3:] == ["done"]
    with pytest.raises(InvalidInput, match=r"'import-7' is not open: add members inside `async with app\.batch"):
        await batch.enqueue(shop.say, "d")


async def test_an_empty_batch_ends_at_once(app: App) -> None:
    names: list[str] = []

    @app.handler
    async def report(name: str) -> None:
        names.append(name)

    @app.handler
    async def tidy() -> None:
        names.append("tidy")

    async with app.batch("nothing", on_done=report, on_ended=tidy) as batch:
        await batch.enqueue_many(report, [])
    await app.run_until_idle()
    assert sorted(names) == ["nothing", "tidy"]
    assert (await app.flows.get(batch.id)).progress == (0, 0)


async def test_a_dead_member_of_a_batch_and_its_repair(app: App, shop: Shop) -> None:
    shop.broken = {"b"}
    ends = {name: shop.say.job(name) for name in ("on_done", "on_ended", "on_any_dead")}
    async with app.batch(
        "import", on_done=ends["on_done"], on_ended=ends["on_ended"], on_any_dead=ends["on_any_dead"]
    ) as batch:
        await batch.enqueue_many(shop.say, "abc")
    info = await shop.finish(batch.id)
    assert sorted(shop.ran) == ["a", "b", "c", "on_any_dead", "on_ended"]
    assert (info.state, info.progress) == ("failed", (3, 3))
    shop.broken = set()
    assert await app.flows.retry(batch.id) == 1
    assert (await shop.finish(batch.id)).state == "done"
    assert shop.ran[5:] == ["b", "on_done"]


async def test_a_member_adds_members_and_the_end_waits_for_them(app: App, shop: Shop) -> None:
    @app.handler
    async def folder(depth: int) -> None:
        if depth:
            app.current.flow.map(folder, [depth - 1] * 2)

    async with app.batch("walk", on_done=shop.say.job("end")) as batch:
        await batch.enqueue(folder, 2)
    info = await shop.finish(batch.id)
    assert (info.state, info.progress, shop.ran) == ("done", (7, 7), ["end"])


async def test_a_body_that_raises_cancels_the_batch(app: App, shop: Shop) -> None:
    with pytest.raises(ValueError, match="row 3"):
        async with app.batch("import", on_done=shop.say.job("done"), on_ended=shop.say.job("ended")) as batch:
            await batch.enqueue_many(shop.say, "ab")
            raise ValueError("row 3")
    info = await shop.finish(batch.id)
    assert (info.state, shop.ran) == ("cancelled", [])


async def test_a_cancelled_batch_is_not_opened_again_under_its_key(app: App, shop: Shop) -> None:
    with pytest.raises(ValueError, match="row 3"):
        async with app.batch("import", key="import-7"):
            raise ValueError("row 3")
    await app.run_until_idle()
    with pytest.raises(FlowEnded, match="is cancelled: it takes no more members; give the batch another key"):
        async with app.batch("import", key="import-7"):
            pytest.fail("it was opened")


async def test_a_dead_member_is_told_before_the_batch_is_closed(app: App, shop: Shop) -> None:
    shop.broken = {"a"}
    async with app.batch("import", on_any_dead=shop.say.job("tell")) as batch:
        await batch.enqueue_many(shop.say, "ab")
        await app.run_until_idle()
        assert sorted(shop.ran) == ["a", "b", "tell"]
    assert (await shop.finish(batch.id)).state == "done"


async def test_a_batch_whose_producer_died_is_taken_up_again_under_its_key(app: App, shop: Shop) -> None:
    died = app.batch("import", key="import-7", on_done=shop.say.job("done"))
    await died.__aenter__()
    await died.enqueue_many(shop.say, "ab")
    await app.run_until_idle()
    async with app.batch("import", key="import-7", on_done=shop.say.job("done")) as batch:
        await batch.enqueue_many(shop.say, "abc")
    info = await shop.finish("import-7")
    assert (info.state, info.progress, shop.ran) == ("done", (3, 3), ["a", "b", "c", "done"])


class Unsure(Wrapper):
    """A store whose answer is lost after the call, once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.lost = False

    async def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        answer = await getattr(self._store, verb)(*args, **kwargs)
        if verb == "enqueue" and not self.lost:
            self.lost = True
            raise StorageUnavailable("the answer was lost")
        return answer


@pytest.mark.parametrize("following", ["a", "b"])
async def test_members_are_neither_lost_nor_doubled_by_a_call_that_failed(app: App, shop: Shop, following: str) -> None:
    """Its member may be stored all the same: the same call again changes nothing, and another one adds another."""
    async with app.batch("import") as batch:
        app.storage = cast(Store, Unsure(app.storage))
        with pytest.raises(StorageUnavailable):
            await batch.enqueue(shop.say, "a")
        await batch.enqueue(shop.say, following)
        await batch.enqueue(shop.say, "c")
    info = await shop.finish(batch.id)
    assert sorted(shop.ran) == sorted({"a", following, "c"})
    assert info.progress == (len(shop.ran), len(shop.ran))


async def test_a_batch_that_nobody_closes_can_be_closed(app: App, shop: Shop) -> None:
    died = app.batch("import", on_done=shop.say.job("done"))
    await died.__aenter__()
    await died.enqueue(shop.say, "a")
    assert (await shop.finish(died.id)).state == "running"
    assert await app.flows.close(died.id)
    assert (await shop.finish(died.id)).state == "done"
    assert not await app.flows.close(died.id)


# -- looking at flows


async def test_flows_are_listed_by_state_and_name(app: App, shop: Shop) -> None:
    shop.broken = {"bad"}
    for name, what in (("one", "a"), ("two", "bad"), ("one", "b")):
        flow = app.flow(name)
        flow.add(shop.say, what)
        await flow.start()
    await app.run_until_idle()
    assert sorted(flow.name for flow in await app.flows.list()) == ["one", "one", "two"]
    assert [flow.name for flow in await app.flows.list(state="failed")] == ["two"]
    assert [flow.state for flow in await app.flows.list(name="one", limit=1)] == ["done"]
    with pytest.raises(InvalidInput, match="must be one of running, done, failed, cancelled, expired, not 'lost'"):
        await app.flows.list(state="lost")  # type: ignore[arg-type]


async def test_why_names_what_a_node_waits_for(app: App, shop: Shop) -> None:
    shop.broken = {"x"}
    flow = app.flow("why")
    a, b = flow.add(shop.say, "a", name="a", delay=60), flow.add(shop.say, "b", name="b", after="a")
    flow.add(shop.say, "next", name="next", after=[a, b])
    await flow.start()
    assert await app.flows.why(flow.id, "a") == "may start: its job is about to be stored"
    await app.run_until_idle()
    assert await app.flows.why(flow.id, "next") == "waits for 2 of 2: a (delayed), b (waiting)"
    assert await app.flows.why(flow.id, "a") == "its job is stored: ask why the job waits"
    with pytest.raises(InvalidInput, match="has no node 'z'; accoda flow"):
        await app.flows.why(flow.id, "z")
    for ask in (app.flows.get, app.flows.retry, app.flows.summary, app.flows.close, app.flows.result):
        with pytest.raises(NotFound):
            await ask("nobody")
    with pytest.raises(NotFound):
        await app.flows.why("nobody", "a")


async def test_a_result_that_takes_too_long_is_a_timeout(app: App, shop: Shop) -> None:
    flow = app.flow("slow")
    flow.add(shop.say, "a", delay=60)
    await flow.start()
    with pytest.raises(FlowTimeout, match=r"is still running after 0\.01 s"):
        await app.flows.result(flow.id, timeout=0.01)


async def test_a_node_tells_its_job_and_its_times(app: App, shop: Shop, trial: Trial) -> None:
    flow = app.flow("times")
    flow.add(shop.say, "a", name="a", keep_for=60)
    started = (await flow.start()).created_at
    trial.advance(1)
    node = (await shop.finish(flow.id)).nodes["a"]
    assert (node.queue, node.result, node.started_at, node.ended_at) == ("say", "A", started + 1000, started + 1000)
    assert node.job_id is not None
    job = (await app.storage.look(ById(node.job_id))).job
    assert job is not None and job.state == "done"


# -- without await, in processes, in a worker


def test_flows_without_await() -> None:
    app = App("memory://")
    shop = Shop(app)
    with app.testing():
        flow = app.flow("sync")
        flow.add(shop.say, "b", name="b", after=flow.add(shop.say, "a", name="a"))
        info = app.sync.start(flow)
        assert app.sync.flows.why(info.id, "b").startswith("waits for 1 of 1: a")
        app.sync.run_until_idle()
        assert app.sync.flows.result(info.id, timeout=5) == "B"
        assert app.sync.flows.get(info.id).state == "done"
        assert [flow.name for flow in app.sync.flows.list(state="done")] == ["sync"]
        with app.sync.batch("batch", on_done=shop.say.job("end")) as batch:
            batch.enqueue_many(shop.say, "cd")
            batch.enqueue(shop.say, "e")
            assert batch.info().open
        app.sync.run_until_idle()
        assert shop.ran == ["a", "b", "c", "d", "e", "end"]
        with pytest.raises(ValueError, match="no"), app.sync.batch("raises") as batch:
            raise ValueError("no")
        app.sync.run_until_idle()
        assert app.sync.flows.get(batch.id).state == "cancelled"
        later = app.sync.start(chain(shop.say.job("f", delay=60)))
        assert app.sync.flows.cancel(later.id) and app.sync.flows.retry(later.id) == 0
        assert not app.sync.flows.close(later.id)
    app.sync.close()


async def test_handlers_in_processes_read_results_and_add_nodes() -> None:
    from tests.flows import flow_jobs as jobs

    app = jobs.app
    async with app, app.testing():
        flow = app.flow("processes")
        flow.add(jobs.split, after=flow.add(jobs.numbers, 4))
        flow.add(jobs.total, after="split")
        await flow.start()
        await app.run_until_idle()
        info = await app.flows.get(flow.id)
        assert info.nodes["split"].result == "4 parts of split"
        assert await app.flows.result(flow.id) == 0 + 2 + 4 + 6


async def test_a_worker_moves_flows_and_stops_what_runs_when_one_is_cancelled() -> None:
    running, stopped = asyncio.Event(), asyncio.Event()

    async with App("memory://") as app:

        @app.handler(lease=2)
        async def forever(n: int) -> None:
            running.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        @app.handler
        async def first() -> int:
            return 1

        flow = app.flow("endless")
        flow.add(forever, 1, after=flow.add(first))
        flow.on_cancel(first, name="undo")
        worker = Worker(app, WorkerOptions(settings=Settings.load(environ={}, overrides={"max_processors": 2})))
        task = asyncio.create_task(worker.run())
        async with asyncio.timeout(60):
            await flow.start()
            await running.wait()
            assert await app.flows.cancel(flow.id)
            await stopped.wait()
            with pytest.raises(FlowEnded):
                await app.flows.result(flow.id)
        info = await app.flows.get(flow.id)
        assert {name: node.state for name, node in info.nodes.items()} == {
            "first": "done",
            "forever": "cancelled",
            "undo": "done",
        }
        assert await worker.graceful_stop(10)
        await task
