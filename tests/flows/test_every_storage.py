"""The main paths of flows, on every storage."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from accoda import App, BuryJob, FlowEnded, FlowInfo, Remove, Worker, WorkerOptions, chain, group
from accoda.settings import Settings


@dataclass
class Charge:
    order: int
    cents: int


class Work:
    """Handlers on queues of this test's own."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.ran: list[Any] = []
        self.broken: list[Any] = []
        self.queue = f"work-{secrets.token_hex(4)}"
        self.echo = app.add_handler(self.queue, self._echo, {"type": "echo"})
        self.parents = app.add_handler(self.queue, self._parents, {"type": "parents"})
        self.split = app.add_handler(self.queue, self._split, {"type": "split"})

    async def _echo(self, what: Any) -> Any:
        self.ran.append(what)
        if what in self.broken:
            raise BuryJob(f"{what} is broken")
        return what

    def _parents(self) -> dict[str, Any]:
        return dict(self.app.current.parents)

    async def _split(self, depth: int) -> None:
        if depth:
            self.app.current.flow.map(self.split, [depth - 1] * 3, name="part")
            self.app.current.flow.add(self.echo, "beside", name="beside", detached=True)

    async def finish(self, id: str) -> FlowInfo:
        """Run what there is to run."""
        async with asyncio.timeout(20):
            while True:
                await self.app.run_until_idle([self.queue])
                info = await self.app.flows.get(id)
                if info.state != "running":
                    return info
                await asyncio.sleep(0.01)  # an inbox may be delayed for a moment


@pytest_asyncio.fixture
async def work(url: str) -> AsyncIterator[Work]:
    async with App(url) as app:
        yield Work(app)


def states(info: FlowInfo) -> dict[str, str]:
    return {name: node.state for name, node in info.nodes.items()}


async def test_a_join_runs_once_with_the_results_by_name(work: Work) -> None:
    flow = work.app.flow("join")
    first = flow.add(work.echo, Charge(17, 900), name="charge")
    parts = flow.map(work.echo, range(20), name="part", after=first)
    flow.add(work.parents, name="join", after=[first, *parts])
    assert (await flow.start()).state == "running"
    info = await work.finish(flow.id)
    assert (info.state, info.progress) == ("done", (22, 22))
    assert info.nodes["join"].result == {
        "charge": {"order": 17, "cents": 900},
        **{f"part-{number + 1}": number for number in range(20)},
    }


async def test_members_that_are_added_at_the_same_time_are_all_stored(work: Work) -> None:
    async with work.app.batch("crowd") as batch:
        await asyncio.gather(*(batch.enqueue(work.echo, number) for number in range(20)))
    info = await work.finish(batch.id)
    assert (info.progress, sorted(work.ran)) == ((20, 20), [*range(20)])


@pytest.mark.parametrize("sizes", [[33_000], [30_000] * 4, [1_000_000]])
async def test_large_results_arrive(work: Work, sizes: list[int]) -> None:
    async def make(size: int) -> str:
        return "x" * size

    def measure() -> list[int]:
        return [len(text) for text in work.app.current.parents.values()]

    made = work.app.add_handler(work.queue, make, {"type": "make"})
    measured = work.app.add_handler(work.queue, measure, {"type": "measure"})
    flow = work.app.flow("large")
    flow.add(measured, name="measure", after=flow.map(made, sizes))
    await flow.start()
    info = await work.finish(flow.id)
    assert info.nodes["measure"].result == sizes


async def test_nodes_add_nodes_and_the_join_waits_for_them(work: Work) -> None:
    flow = work.app.flow("fan-out")
    flow.add(work.echo, "join", name="join", after=flow.add(work.split, 2, name="split"))
    await flow.start()
    info = await work.finish(flow.id)
    assert info.state == "done" and len(info.nodes["join"].after) == 1 + 3 + 9
    assert work.ran.count("join") == 1 and work.ran.count("beside") == 4


async def test_chains_and_groups_hand_results_on(work: Work) -> None:
    echo = work.echo
    info = await chain(echo.job(1), group(echo.job(), chain(echo.job(2), echo.job())), echo.job(name="end")).start()
    assert (await work.finish(info.id)).nodes["end"].result == [1, 2]


async def test_every_when_and_the_repair_of_a_failed_flow(work: Work) -> None:
    work.broken = ["b"]
    flow = work.app.flow("when")
    before = [flow.add(work.echo, name, name=name) for name in "ab"]
    for when in ("all_done", "all_ended", "any_done", "any_dead"):
        flow.add(work.echo, when, name=when, after=before, when=when)
    await flow.start()
    info = await work.finish(flow.id)
    assert states(info) == {
        "a": "done",
        "b": "dead",
        "all_done": "skipped",
        "all_ended": "done",
        "any_done": "done",
        "any_dead": "done",
    }
    assert info.state == "failed"
    with pytest.raises(FlowEnded, match="b is dead"):
        await work.app.flows.result(flow.id)
    work.broken = []
    assert await work.app.flows.retry(flow.id) == 1
    info = await work.finish(flow.id)
    assert info.state == "done" and set(states(info).values()) == {"done"}
    assert sorted(work.ran) == ["a", "all_done", "all_ended", "any_dead", "any_done", "b", "b"]


async def test_members_that_are_removed_purged_or_cancelled_do_not_stall_the_flow(work: Work) -> None:
    flow = work.app.flow("removed")
    for name in "abc":
        flow.add(work.echo, name, name=name, delay=3600)
    flow.add(work.echo, "end", name="end", after=list("abc"), when="all_ended")
    await flow.start()
    await work.app.run_until_idle([work.queue])
    nodes = (await work.app.flows.get(flow.id)).nodes
    await work.app.storage.change([Remove(nodes["a"].job_id or 0)])
    await work.app.cancel(nodes["b"].job_id or 0)
    await work.app.storage.purge(work.queue, "delayed")
    info = await work.finish(flow.id)
    assert states(info) == {"a": "removed", "b": "cancelled", "c": "removed", "end": "done"}


async def test_cancel_and_deadline_end_a_flow(work: Work) -> None:
    for deadline, state in ((None, "cancelled"), (0.05, "expired")):
        flow = work.app.flow("stopped", deadline=deadline)
        flow.add(work.echo, "next", name="next", after=flow.add(work.echo, "late", name="late", delay=3600))
        flow.on_cancel(work.echo, state, name="undo")
        await flow.start()
        await work.app.run_until_idle([work.queue])
        if deadline is None:
            assert await work.app.flows.cancel(flow.id)
        info = await work.finish(flow.id)
        assert (info.state, states(info)) == (state, {"late": "cancelled", "next": "cancelled", "undo": "done"})
    assert work.ran == ["cancelled", "expired"]


async def test_a_batch_with_a_dead_member_and_an_empty_one(work: Work) -> None:
    work.broken = [2]
    ends = {f"on_{end}": work.echo.job(end) for end in ("done", "ended", "any_dead")}
    async with work.app.batch("import", **ends) as batch:
        await batch.enqueue_many(work.echo, [1, 2])
        await batch.enqueue(work.echo, 3)
    info = await work.finish(batch.id)
    assert (info.state, info.progress) == ("failed", (3, 3))
    assert sorted(map(str, work.ran)) == ["1", "2", "3", "any_dead", "ended"]
    async with work.app.batch("empty", on_done=work.echo.job("empty")) as batch:
        pass
    assert (await work.finish(batch.id)).state == "done" and work.ran[-1] == "empty"
    with pytest.raises(ValueError, match="stop"):
        async with work.app.batch("raises", on_ended=work.echo.job("never")) as batch:
            await batch.enqueue(work.echo, 4)
            raise ValueError("stop")
    assert (await work.finish(batch.id)).state == "cancelled" and "never" not in work.ran


async def test_a_key_starts_a_flow_once(work: Work) -> None:
    key = secrets.token_hex(4)

    async def start(number: int) -> FlowInfo:
        flow = work.app.flow("keyed", key=key)
        flow.add(work.echo, number, name=f"by {number}")
        return await flow.start()

    told = await asyncio.gather(*(start(number) for number in range(5)))
    assert len({tuple(info.nodes) for info in told}) == 1
    assert (await work.finish(key)).state == "done"
    await start(6)
    await work.finish(key)
    assert len(work.ran) == 1


async def test_workers_move_flows_as_jobs_end(work: Work) -> None:
    app = work.app
    settings = Settings.load(environ={}, overrides={"max_processors": 2})
    workers = [Worker(app, WorkerOptions(settings=settings)) for _ in range(2)]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    async with asyncio.timeout(20):
        flow = app.flow("worked on")
        flow.add(work.echo, "end", name="end", after=flow.map(work.echo, range(50), after=flow.add(work.split, 1)))
        await flow.start()
        assert await app.flows.result(flow.id) == {"end": "end", "_split.beside": "beside"}
        assert work.ran.count("end") == 1 and len(work.ran) == 52
        for worker in workers:
            assert await worker.graceful_stop(10)
        await asyncio.gather(*running)
