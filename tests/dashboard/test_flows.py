"""The pages of flows: the list, one flow with its graph and its nodes, and what can be done with it."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from dash import HOSTILE, Dash, Stream
from proof.service import ServiceRunner

from accoda import App
from accoda.flows.builder import Flow
from accoda.http.options import ServiceOptions

NO_SYSTEM_JOBS = ServiceOptions(system_jobs=False)
"""So that a flow goes on only when a test lets it."""


class ShopApp(App):
    """Pays, and reserves what is not missing."""

    def __init__(self) -> None:
        super().__init__("memory://")
        self.missing: set[str] = set()

        @self.handler("payments", keep_for=60)
        async def pay(order: dict[str, Any]) -> int:
            return 42

        @self.handler("warehouse", max_attempts=1, secret=("where",))
        async def reserve(part: dict[str, Any]) -> None:
            if part["where"] in self.missing:
                raise ValueError(f"no stock in {part['where']}: {HOSTILE}")

        self.pay = pay


class Shop(Dash):
    """A dashboard over the example of an order."""

    app: ShopApp

    def order(self, *, warehouses: tuple[str, ...] = ("milan", "rome", "turin"), **options: Any) -> Flow:
        flow = self.app.flow("order-17", **{"key": "order-17", **options})
        charged = flow.add("payments", {"order": 17}, name="charge")
        parts = [flow.add("warehouse", {"where": each}, name=f"reserve-{each}", after=charged) for each in warehouses]
        flow.add("warehouse", {"where": ""}, name="ship", after=parts)
        flow.add("payments", {}, name="refund", after=parts, when="any_dead")
        self.run(lambda app: flow.start())
        return flow

    def work(self, *queues: str) -> None:
        """Run what can run, and let the flows go on from it."""
        self.run(lambda app: app.run_until_idle(queues or None))


@pytest.fixture
def shop() -> Iterator[Shop]:
    with ServiceRunner(ShopApp(), NO_SYSTEM_JOBS) as service:
        yield Shop(service)


def box(page: str, name: str) -> str:
    """The box of a node in the graph."""
    found = re.search(rf'<(a|g) class="node [^>]*data-key="node-{re.escape(name)}".*?</\1>', page, re.DOTALL)
    assert found is not None, name
    return found[0]


def row(page: str, name: str) -> str:
    found = re.search(rf'<tr data-key="row-{re.escape(name)}">.*?</tr>', page, re.DOTALL)
    assert found is not None, name
    return found[0]


# -- the list


def test_without_flows_it_says_how_to_start_one(shop: Shop) -> None:
    page = shop.text("/flows")
    assert "No flows." in page and "app.flow(" in page and "await flow.start()" in page


def test_flows_are_listed_with_their_progress(shop: Shop) -> None:
    shop.order(deadline=3600)
    assert 'href="/flows/order-17"' in shop.text("/flows")  # nothing is counted before a worker has seen it
    shop.work("payments")
    page = shop.text("/flows")
    assert 'aria-label="1 of 6 ended"' in page and 'class="state taken"' in page
    assert ">in 59 min<" in page
    shop.work()
    page = shop.text("/flows")
    assert 'aria-label="6 of 6 ended"' in page and 'class="state done"' in page and "in 59 min" not in page


def test_flows_are_filtered_by_state_and_name(shop: Shop) -> None:
    shop.order()
    shop.work()
    shop.order(key="other")
    assert 'href="/flows/other"' in shop.text("/flows?state=running")
    assert 'href="/flows/order-17"' not in shop.text("/flows?state=running")
    assert 'href="/flows/order-17"' in shop.text("/flows?state=done&name=order-17")
    assert "No matching flows." in shop.text("/flows?name=nothing") and "No flow is failed." in shop.text(
        "/flows?state=failed"
    )
    for wrong in ("state=odd", "page=x", "cursor=x", "cursor=1.2.3"):
        assert shop.get(f"/flows?{wrong}").status == 422


def test_flows_of_one_name_are_told_apart_by_their_ids(shop: Shop) -> None:
    shop.order()
    shop.order(key="order-18")
    page = shop.text("/flows")
    assert page.count(">order-17</a>") == 2
    assert re.findall(r'class="soft" dir="auto">([^<]*)<', page) == ["order-18"]


def test_a_long_list_has_pages_and_the_newest_flow_is_first(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    from accoda.dashboard.pages import flows

    for number in range(7):
        shop.order(key=f"flow-{number}", warehouses=("milan",))
    monkeypatch.setattr(flows, "ROWS", 2)
    monkeypatch.setattr(flows, "SORTED", 4)
    seen, path = [], "/flows"
    for _ in range(9):
        page = shop.text(path)
        seen += re.findall(r'href="/flows/(flow-\d)"', page)
        following = re.search(r'rel="next" href="([^"]+)"', page)
        if following is None:
            break
        path = following[1].replace("&amp;", "&")
    assert sorted(seen) == [f"flow-{number}" for number in range(7)]
    assert 'href="/flows">First page' in page


# -- one flow


def test_the_graph_has_a_box_for_each_node_and_columns_by_distance(shop: Shop) -> None:
    shop.order()
    page = shop.text("/flows/order-17")
    names = ("charge", "reserve-milan", "reserve-rome", "reserve-turin", "ship", "refund")
    places = {name: re.findall(r"translate\((\d+) (\d+)\)", box(page, name))[0] for name in names}
    columns = [int(places[name][0]) for name in names]
    assert columns[0] < columns[1] == columns[2] == columns[3] < columns[4] == columns[5]
    assert len(set(places.values())) == 6
    assert page.partition('class="curves"')[2].partition("</g>")[0].count("<path") == 9
    assert page.index('id="graph"') < page.index('id="nodes"')


def test_a_node_is_told_by_a_word_and_a_sign_and_all_about_it_on_focus(shop: Shop) -> None:
    shop.order()
    shop.work("payments")
    page = shop.text("/flows/order-17")
    charge, ship = box(page, "charge"), box(page, "ship")
    assert ">done</text>" in charge and 'class="sign"' in charge and 'href="/jobs/' in charge
    assert ">waiting</text>" in ship and 'tabindex="0"' in ship and "href=" not in ship
    assert "Starts when all before it are done; 3 of 3 have not ended" in ship and "in queue warehouse" in ship
    assert "Starts when one before it is dead" in box(page, "refund")


def test_a_done_job_that_was_not_kept_is_no_link(shop: Shop) -> None:
    shop.order()
    shop.work()
    page = shop.text("/flows/order-17")
    assert "href=" not in box(page, "ship") and "href=" in box(page, "charge")
    assert "<a " not in row(page, "ship") and "It has ended and was not kept" in row(page, "ship")


def test_the_critical_path_is_drawn_stronger(shop: Shop) -> None:
    shop.order()
    shop.work()
    page = shop.text("/flows/order-17")
    assert "critical path" in page and 'class="node done strong"' in box(page, "charge")
    assert len(re.findall(r'<path d="[^"]+" class="strong', page)) == 2  # charge, one of the three, ship


def test_a_failed_flow_names_the_dead_node_and_goes_on_when_it_is_retried(shop: Shop) -> None:
    shop.app.missing.add("rome")
    shop.order()
    shop.work()
    page = shop.text("/flows/order-17")
    assert (
        'class="state failed"' in page
        and "The flow cannot go on." in page
        and "reserve-rome</a> is dead: <span" in page
    )
    notice = page.partition("The flow cannot go on.")[2].partition("</p>")[0]
    assert "ValueError: no stock in •••" in notice and "Fix the cause" in notice
    assert ">skipped</text>" in box(page, "ship") and ">done</text>" in box(page, "refund")
    shop.app.missing.clear()
    to, said = shop.done("/do/flows/order-17/retry", back="/flows/order-17")
    assert (to, said) == ("/flows/order-17", "1 dead job of order-17 will run again.")
    shop.work()
    assert ">done</text>" in box(shop.text("/flows/order-17"), "ship")
    refused = shop.do("/do/flows/order-17/retry")
    assert refused.status == 409 and b"no dead jobs" in refused.body


def test_errors_hide_secrets_and_hostile_texts_are_texts(shop: Shop) -> None:
    shop.app.missing.add("rome-4711")
    shop.order(warehouses=("milan",), key="plain")
    flow = shop.app.flow(HOSTILE.replace("/", "|"), key=HOSTILE.replace("/", "|"))
    flow.add("warehouse", {"where": "rome-4711"}, name=HOSTILE.replace("/", "|"))
    shop.run(lambda app: flow.start())
    shop.work()
    listed = shop.text("/flows")
    address = next(each for each in re.findall(r'href="(/flows/[^"?]+)"', listed) if "plain" not in each)
    page = shop.text(address)
    assert "no stock in •••" in row(page, "&lt;script&gt;alert(&#39;x&#39;)&lt;|script&gt;&#34;&#39;&amp;\u202e")
    assert "4711" not in page and "no stock in •••" in re.findall(r'aria-label="([^"]+)" href="/jobs/', page)[0]


def test_nodes_are_filtered_by_state_and_paged(shop: Shop) -> None:
    flow = shop.app.flow("many", key="many")
    flow.map("payments", [{}] * 120, name="part")
    shop.run(lambda app: flow.start())
    page = shop.text("/flows/many")
    assert page.count('<tr data-key="row-') == 50 and "Page 1 of 3" in page and 'rel="next"' in page
    last = shop.text("/flows/many?page=3&state=waiting")
    assert last.count('<tr data-key="row-') == 20 and 'rel="next"' not in last and 'rel="prev"' in last
    assert "No node is dead." in shop.text("/flows/many?state=dead")
    for wrong in ("state=odd", "page=-1", "column=x"):
        assert shop.get(f"/flows/many?{wrong}").status == 422


def test_what_is_alike_is_folded_and_unfolded(shop: Shop) -> None:
    flow = shop.app.flow("wide", key="wide")
    split = flow.add("payments", {}, name="split")
    flow.add("payments", {}, name="join", after=flow.map("payments", [{}] * 100, name="part", after=split))
    shop.run(lambda app: flow.start())
    page = shop.text("/flows/wide")
    folded = box(page, "part-1")
    assert "part ×100" in folded and "100 waiting" in folded and 'href="/flows/wide?unfold=part-1#graph"' in folded
    assert page.count('data-key="node-') == 3
    page = shop.text("/flows/wide?unfold=part-1")
    assert page.count('data-key="node-') == 63 and "part ×40" in page and "Fold again" in page


def test_a_flow_of_ten_thousand_nodes_is_a_small_page_with_the_table_first(shop: Shop) -> None:
    flow = shop.app.flow("huge", key="huge")
    split = flow.add("payments", {}, name="split")
    flow.add("payments", {}, name="join", after=flow.map("payments", [{}] * 10_000, name="part", after=split))
    shop.run(lambda app: flow.start())
    page = shop.text("/flows/huge")
    assert page.index('id="nodes"') < page.index('id="graph"') and "part ×10,000" in page
    assert len(page) < 100_000 and len(shop.text("/flows/huge?unfold=part-1")) < 200_000
    assert len(shop.text("/flows")) < 20_000


def test_a_long_chain_is_drawn_in_parts(shop: Shop) -> None:
    flow = shop.app.flow("long", key="long")
    last = flow.add("payments", {}, name="step-0")
    for number in range(1, 1000):
        last = flow.add("payments", {}, name=f"step-{number}", after=last)
    shop.run(lambda app: flow.start())
    page = shop.text("/flows/long")
    assert "Columns 1 to 400 of 1,000." in page and 'href="/flows/long?column=400#graph"' in page
    assert len(page) < 1_000_000
    page = shop.text("/flows/long?column=800")
    assert "Columns 801 to 1,000 of 1,000." in page and "First columns" in page and "Next columns" not in page


# -- actions


def test_a_running_flow_is_cancelled(shop: Shop) -> None:
    shop.order()
    assert "Cancel the flow order-17?" in shop.text("/flows/order-17")
    said = shop.done("/do/flows/order-17/cancel", back="/flows/order-17")
    assert said == ("/flows/order-17", "order-17 is being cancelled.")
    shop.work()
    page = shop.text("/flows/order-17")
    assert 'class="state cancelled"' in page and "Cancel the flow" not in page
    refused = shop.do("/do/flows/order-17/cancel")
    assert refused.status == 409 and b"only a running flow" in refused.body


def test_an_open_batch_is_closed(shop: Shop) -> None:
    async def leave_open(app: App) -> None:
        batch = app.batch("import", key="import", on_done=shop.app.pay.job({}))
        await batch.__aenter__()
        await batch.enqueue_many("payments", [{}, {}])

    shop.run(leave_open)
    shop.work()
    page = shop.text("/flows/import")
    assert "open batch" in page and "Close the batch" in page and 'aria-label="2 of 2 ended"' in page
    assert shop.done("/do/flows/import/close")[1] == "import takes no more members."
    shop.work()
    assert 'class="state done"' in shop.text("/flows/import") and shop.do("/do/flows/import/close").status == 409


def test_actions_need_the_scope_admin(dashes: dict[str, Dash]) -> None:
    flow = dashes["admin"].app.flow("order", key="order")
    flow.add("payments", {}, name="charge")
    dashes["admin"].run(lambda app: flow.start())
    assert "/do/" not in dashes["read"].text("/flows/order") and "/do/" in dashes["admin"].text("/flows/order")
    for action in ("cancel", "retry", "close"):
        assert dashes["read"].do(f"/do/flows/order/{action}").status == 403
    assert dashes["read"].service.get("/flows/order").status == 303  # to the login
    assert dashes["admin"].done("/do/flows/order/cancel")[0] == "/"


def test_what_is_no_flow_is_told(shop: Shop) -> None:
    for path in ("/flows/none", "/flows/%3Cscript%3E"):
        assert shop.get(path).status == 404
    for action in ("cancel", "retry", "close"):
        assert shop.do(f"/do/flows/none/{action}").status == 404


# -- around it


def test_the_job_of_a_flow_names_its_node_and_what_is_around_it(shop: Shop) -> None:
    shop.order()
    shop.work("payments")
    page = shop.text("/flows/order-17")
    job = re.findall(r'href="(/jobs/\d+)"', row(page, "reserve-rome"))[0]
    page = shop.text(job)
    assert 'as</span> <b dir="auto">reserve-rome</b>' in page and 'href="/flows/order-17"' in page
    before, _, after = page.partition("After this job")
    assert "charge</a>" in before.partition("Before this job")[2] and "ship" in after and "refund" in after


def test_a_job_of_a_flow_that_is_gone_says_so(shop: Shop) -> None:
    shop.order(keep_for=0)
    shop.work()
    jobs = re.findall(r'href="(/jobs/\d+)"', shop.text("/jobs?queue=payments&state=done"))
    assert "The flow has ended and is no longer kept." in shop.text(jobs[0])


def test_a_flow_is_live_and_time_that_passes_is_no_change(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    from accoda.dashboard import live

    monkeypatch.setattr(live, "EVERY", 0.02)
    shop.order()
    shop.work("payments")
    stream = Stream(shop.service, "/flows/order-17")
    assert stream.event()[0] == "live"
    shop.work()
    while (event := stream.event())[0] == "same":
        pass
    assert event[0] == "live" and 'class="state done"' in event[1]
    stream.close()
    first, second = (
        f'<tspan data-since="2030-01-01T00:00:00Z">{age}</tspan><text>{age}</text>' for age in ("1 s", "2 s")
    )
    assert live._TIMES.sub(r"\1", first).startswith(live._TIMES.sub(r"\1", second).partition("</tspan>")[0])
    assert "2 s" in live._TIMES.sub(r"\1", second)


def test_every_page_of_flows_lives_and_runs_only_our_own_files(shop: Shop) -> None:
    shop.order()
    for path in ("/flows", "/flows/order-17"):
        page = shop.text(path)
        assert '<section id="live" data-live' in page and not re.search(r"\sstyle=|\son[a-z]+=|<style", page)
