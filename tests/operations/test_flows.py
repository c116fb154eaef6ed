"""Flows as people see and repair them, and what operations on members do to their flow."""

import pytest

from accoda import App, Bury, Done, ManualClock
from accoda.errors import Conflict, InvalidInput, NotFound
from accoda.flows.coordinator import Coordinator, FlowTimers
from accoda.flows.listing import count_flows
from accoda.operations import bulk, flows, jobs, queues
from accoda.operations.bulk import bulk_runner
from accoda.operations.flows import FlowDetail
from accoda.operations.job_filter import JobFilter
from accoda.operations.why import why
from accoda.runtime.retention import forget_dead

ORDER = "order-17"


async def start(app: App, key: str = ORDER, **options: float) -> None:
    flow = app.flow("order", key=key, **options)  # type: ignore[arg-type]
    flow.add("stock", 1, name="reserve-1")
    flow.add("stock", 2, name="reserve-2")
    flow.add("parcels", 17, name="ship", after=["reserve-1", "reserve-2"])
    await flow.start()
    await move(app)


async def move(app: App) -> None:
    for job in (FlowTimers(), Coordinator()):
        while await job.run_once(app.storage):
            pass


async def finish(app: App, queue: str, count: int = 100, *, reason: str | None = None) -> list[int]:
    """Do ready jobs, or bury them, and let their flows go on."""
    taken = await app.storage.take(queue, count)
    await app.storage.settle([Bury(job.lease, reason) if reason else Done(job.lease) for job in taken])
    await move(app)
    return [job.id for job in taken]


async def failed(app: App) -> FlowDetail:
    """An order of which a part is dead."""
    await start(app)
    await finish(app, "stock", 1, reason="out of stock")
    await finish(app, "stock")
    return await flows.get(app, ORDER)


def states(flow: FlowDetail) -> dict[str, str]:
    return {node.name: node.state for node in flow.nodes}


async def test_a_flow_is_shown_with_its_nodes(app: App) -> None:
    await start(app)
    found = await flows.get(app, ORDER)
    assert states(found) == {"reserve-1": "ready", "reserve-2": "ready", "ship": "waiting"}
    assert (found.state, found.ended, found.total, found.counts) == ("running", 0, 3, {"waiting": 1, "started": 2})
    assert await app.storage.take("stock", 1)
    assert states(await flows.get(app, ORDER))["reserve-1"] == "running"


async def test_a_flow_is_counted_before_its_first_round(app: App) -> None:
    flow = app.flow("order", key=ORDER)
    flow.add("stock")
    await flow.start()
    assert (await flows.summary(app, ORDER)).total == 1


async def test_a_bulk_revival_lets_the_flow_go_on(app: App, clock: ManualClock) -> None:
    assert (await failed(app)).state == "failed"
    clock.advance(1)
    view = await bulk.start(app, "retry", JobFilter(queue="stock", state="dead"))
    while await bulk_runner(app).run_once(app.storage):
        pass
    assert (await bulk.get(app, view.id)).changed == 1
    await move(app)
    assert (await flows.summary(app, ORDER)).state == "running"
    await finish(app, "stock")
    await finish(app, "parcels")
    assert (await flows.summary(app, ORDER)).state == "done"


async def test_a_revival_of_one_job_and_of_some_lets_the_flow_go_on(app: App) -> None:
    dead = next(node.job_id for node in (await failed(app)).nodes if node.state == "dead")
    assert dead is not None
    await jobs.retry(app, dead)
    await move(app)
    assert (await flows.summary(app, ORDER)).state == "running"
    await finish(app, "stock", reason="still out of stock")
    assert await jobs.revive(app, [dead]) == 1
    await move(app)
    assert (await flows.summary(app, ORDER)).state == "running"


@pytest.mark.parametrize("way", ["purge", "delete", "cancel", "bulk cancel", "bulk delete"])
async def test_a_flow_ends_if_a_member_is_taken_away(app: App, clock: ManualClock, way: str) -> None:
    await start(app)
    if way == "purge":
        await queues.purge(app, "stock", "ready")
    elif way in ("delete", "cancel"):
        for node in (await flows.get(app, ORDER)).nodes[:2]:
            await (jobs.delete if way == "delete" else jobs.cancel)(app, node.job_id or 0)
    else:
        clock.advance(1)
        await bulk.start(app, "cancel" if way == "bulk cancel" else "delete", JobFilter(queue="stock", state="ready"))
        while await bulk_runner(app).run_once(app.storage):
            pass
    await move(app)
    found = await flows.get(app, ORDER)
    gone = "cancelled" if "cancel" in way else "removed"
    assert (found.state, states(found)) == ("failed", {"reserve-1": gone, "reserve-2": gone, "ship": "skipped"})


async def test_a_flow_ends_and_goes_when_its_dead_member_was_kept_long_enough(app: App, clock: ManualClock) -> None:
    await failed(app)
    clock.advance(3601)
    assert await forget_dead(app.storage, {"stock": 3600.0}) == 1
    await move(app)
    found = await flows.get(app, ORDER)
    assert (found.state, states(found)["reserve-1"]) == ("failed", "removed")
    with pytest.raises(Conflict, match="no dead job"):
        await flows.retry(app, ORDER)
    clock.advance(2 * 86_400)
    await move(app)
    with pytest.raises(NotFound):
        await flows.get(app, ORDER)


async def test_a_running_member_that_is_purged_ends_the_wait_too(app: App) -> None:
    await start(app)
    taken = await app.storage.take("stock", 2)
    assert await queues.purge(app, "stock", "taken") == 2
    assert len(await app.storage.settle([Done(job.lease) for job in taken])) == 2, "refused"
    await move(app)
    assert (await flows.summary(app, ORDER)).state == "failed"


async def test_retry_cancel_and_close_say_why_they_cannot(app: App) -> None:
    await start(app)
    with pytest.raises(Conflict, match=r"\(running\) has no dead job: there is nothing"):
        await flows.retry(app, ORDER)
    with pytest.raises(Conflict, match="no open batch"):
        await flows.close(app, ORDER)
    await finish(app, "stock")
    await finish(app, "parcels")
    with pytest.raises(Conflict, match=r"has ended \(done\): only one that runs"):
        await flows.cancel(app, ORDER)
    for act in (flows.get, flows.summary, flows.queues, flows.cancel, flows.close, flows.retry):
        for id in ("nothing", "a/b", "a\x00b", "x" * 500):
            with pytest.raises(NotFound):
                await act(app, id)


async def test_why_names_what_a_node_waits_for(app: App, clock: ManualClock) -> None:
    await start(app)
    await app.storage.take("stock", 1)
    clock.advance(4)
    told = await flows.why(app, ORDER, "ship")
    assert told.line == "waits for 2 of 2: reserve-1 (running 4 s), reserve-2 (ready)"
    with pytest.raises(NotFound, match="no node 'packing'"):
        await flows.why(app, ORDER, "packing")


async def test_why_of_a_job_names_its_flow_and_node(app: App) -> None:
    await start(app)
    id = (await flows.get(app, ORDER)).nodes[0].job_id
    assert id is not None
    told, view = await why(app, id), await jobs.get(app, id)
    assert (told.flow, told.node) == (view.flow, view.node) == (ORDER, "reserve-1")


async def test_secrets_are_hidden_in_results_errors_and_why(app: App) -> None:
    @app.handler("cards", secret=("card",))
    async def charge(order: dict[str, str]) -> None: ...

    flow = app.flow("order", key=ORDER)
    for name in ("good", "bad"):
        flow.add(charge, {"card": "4111-1111"}, name=name)
    flow.add("parcels", name="ship", after=["good", "bad"])
    await flow.start()
    await move(app)
    good, bad = await app.storage.take("cards", 2)
    result = b"\x82\xa4card\xa94111-1111\xa4note\xb1paid by 4111-1111"
    await app.storage.settle([Done(good.lease, result=result), Bury(bad.lease, "ValueError: 4111-1111 is no card")])
    await move(app)
    nodes = {node.name: node for node in (await flows.get(app, ORDER)).nodes}
    assert nodes["good"].result == {"card": "•••", "note": "paid by •••"}
    assert nodes["bad"].error == "ValueError: ••• is no card"
    assert "4111" not in (await flows.why(app, ORDER, "ship")).line


async def test_the_payload_that_is_the_result_before_it_is_masked_too(app: App) -> None:
    @app.handler("first")
    async def first(n: int) -> dict[str, str]: ...

    @app.handler("second", secret=("card",))
    async def second(order: dict[str, str]) -> None: ...

    from accoda import chain

    flow = chain(first.job(1), second.job()).flow("pay", key=ORDER)
    await flow.start()
    await move(app)
    [job] = await app.storage.take("first", 1)
    await app.storage.settle([Done(job.lease, result=b"\x81\xa4card\xa94111-1111")])
    await move(app)
    await finish(app, "second", reason="ValueError: 4111-1111 is no card")
    assert (await flows.get(app, ORDER)).nodes[1].error == "ValueError: ••• is no card"


async def test_pages_go_through_all_flows_and_each_once(app: App, clock: ManualClock) -> None:
    for number in range(7):
        await start(app, f"run-{number}")
    await start(app, "timed", deadline=3600.0)
    await start(app, "ended")
    await app.storage.take("stock", 16)  # those of the others
    await finish(app, "stock")
    await finish(app, "parcels")
    await start(app, "late", deadline=1.0)
    clock.advance(10)  # its deadline comes, and no one sees to it
    found, cursor = [], None
    while True:
        page = await flows.page(app, limit=3, cursor=cursor)
        found += [flow.id for flow in page.items]
        if (cursor := page.next) is None:
            break
    assert found == [*(f"run-{number}" for number in range(7)), "timed", "ended", "late"]
    assert [flow.id for flow in (await flows.page(app, state="done")).items] == ["ended"]
    assert (await flows.page(app, name="nothing")).items == []
    assert await count_flows(app.storage) == {"running": 9, "done": 1, "failed": 0, "cancelled": 0, "expired": 0}


async def test_a_page_that_cannot_be_asked_for_is_refused(app: App) -> None:
    for wrong in ({"state": "faild"}, {"limit": 0}, {"cursor": "x"}):
        with pytest.raises(InvalidInput):
            await flows.page(app, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="running, done, failed"):
        await flows.page(app, state="faild")  # type: ignore[arg-type]


async def test_what_a_flow_is_made_of_is_not_changed_as_a_job(app: App) -> None:
    await start(app)
    [record] = (await jobs.page(app, JobFilter(queue="accoda.flows.log", system=True))).items
    for act in (jobs.delete, jobs.cancel, jobs.retry):
        with pytest.raises(Conflict, match="is the flow 'order-17' itself"):
            await act(app, record.id)
    with pytest.raises(Conflict, match="flows themselves"):
        await queues.purge(app, "accoda.flows.log", "delayed")
    assert "record of flow order-17" in (await why(app, record.id)).line
    assert not [queue.name for queue in await queues.list(app) if queue.name.startswith("accoda.")]


async def test_the_queues_of_flows_are_never_called_stuck_or_behind(app: App, clock: ManualClock) -> None:
    await start(app, deadline=60.0)
    await app.storage.take("stock", 2, lease=1e6)
    clock.advance(3600)
    await app.flows.cancel(ORDER)
    found = {queue.name: queue for queue in await queues.list(app, system=True)}
    for name in ("accoda.flows", "accoda.flows.log"):
        assert (found[name].ready, found[name].health.word) == (1, "healthy")
