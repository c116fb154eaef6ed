"""What can be done on the dashboard, done with a mouse: each action is confirmed, and its effect seen in the store."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import pytest
from browser_visit import PATIENCE, Visit
from browser_world import JOBS, Service, World
from covers import covers
from playwright.sync_api import expect


class Jobs:
    """Finding jobs, and changing one or many."""

    def test_jobs_are_filtered_and_the_address_keeps_the_filter(self, visit: Visit, world: World) -> None:
        mine = world.enqueue("filtered", {"customer": {"id": 42}}, priority="HIGH", key="one", name="Invoice 7")
        other = world.enqueue("filtered", {"customer": {"id": 43}})
        visit.go("/jobs")
        page = visit.page
        page.get_by_label("Queue", exact=True).fill("filtered")
        visit.press("Show")
        expect(page).to_have_url(re.compile(r"queue=filtered"))
        visit.lists(mine, other)
        for label, text in (("Payload field", "customer.id=42"), ("Key", "one"), ("Name", "Invoice")):
            page.get_by_label(label, exact=True).fill(text)
        page.get_by_label("State").select_option("ready")
        page.get_by_label("Priority").select_option("HIGH")
        visit.press("Show")
        expect(page).to_have_url(re.compile(r"field=customer\.id%3D42"))
        visit.lists(mine)
        page.reload()
        visit.lists(mine)
        expect(page.get_by_label("Payload field")).to_have_value("customer.id=42")
        page.go_back()
        visit.lists(mine, other)
        visit.go("/jobs?queue=orders&error=BankIsClosed")
        expect(visit.main.locator("tbody tr")).to_have_count(1)
        visit.main.get_by_role("link", name="Clear").click()
        expect(page).to_have_url(re.compile(r"/jobs$"))

    def test_a_filter_that_cannot_be_used_is_told_beside_it(self, visit: Visit) -> None:
        visit.go("/jobs")
        visit.page.get_by_label("Payload field").fill("no equals sign")
        visit.press("Show")
        expect(visit.main.get_by_role("alert")).to_contain_text("field")
        expect(visit.page.get_by_label("Payload field")).to_have_value("no equals sign")

    def test_long_lists_are_turned_page_by_page(self, visit: Visit, world: World) -> None:
        made = world.enqueue_many("long-list", range(60))
        visit.go("/jobs?queue=long-list")
        first = visit.ids()
        visit.main.get_by_role("link", name="Next page").click()
        expect(visit.main.locator("tbody tr")).to_have_count(10)
        assert sorted(first + visit.ids()) == made
        visit.main.get_by_role("link", name="First page").click()
        expect(visit.main.locator("tbody tr")).to_have_count(50)

    @covers("/do/bulk", "/bulk/{id}")
    def test_all_that_match_are_retried_and_the_progress_is_seen(self, visit: Visit, world: World) -> None:
        made = world.enqueue_many("orders", [{"n": n, "lot": "bulk"} for n in range(12)])
        world.wait_for("dead", *made)
        world.mend("bulk")
        visit.go("/jobs?queue=orders&state=dead&field=lot%3Dbulk")
        visit.page.get_by_label("Apply to").select_option("matching")
        visit.page.get_by_label("Action", exact=True).select_option("retry")
        visit.press("Continue")
        expect(visit.page.get_by_role("heading", level=1)).to_have_text("Retry 12 jobs?")
        visit.is_usable_by_all()
        visit.press("Retry 12 jobs")
        expect(visit.page).to_have_url(re.compile(r"/bulk/[^?]+$"))
        visit.page.evaluate("window.same = true")
        expect(visit.main.locator(".state").first).to_have_text("finished", timeout=PATIENCE)
        assert visit.page.evaluate("window.same")
        visit.shows("12 retried")
        visit.is_usable_by_all()
        visit.fits()
        world.wait_for("done", *made)

    @covers("/do/bulk/{id}/stop")
    def test_a_bulk_action_is_stopped(self, visit: Visit, world: World) -> None:
        id = world.enqueue("kept-back")
        world.api("POST", "/api/v1/queues/accoda.bulk/pause", {})  # so that it cannot be over before it is stopped
        try:
            visit.go("/bulk?action=delete&which=matching&queue=kept-back")
            visit.press("Delete 1 job")
            expect(visit.page).to_have_url(re.compile(r"/bulk/[^?]+$"))
            visit.is_live()
            visit.press("Stop")
            visit.confirm("Stop it")
            expect(visit.main.locator(".state").first).to_have_text("stopped", timeout=PATIENCE)
        finally:
            world.api("POST", "/api/v1/queues/accoda.bulk/resume")
        assert world.state(id) == "ready"

    @covers("/do/picked")
    def test_jobs_that_are_ticked_get_another_priority(self, visit: Visit, world: World) -> None:
        first, second, third = world.enqueue_many("ticked", range(3))
        visit.go("/jobs?queue=ticked")
        for id in (first, third):
            visit.page.get_by_label(f"Select job {id}", exact=True).check()
        visit.page.get_by_label("Action", exact=True).select_option("priority")
        visit.press("Continue")
        visit.page.get_by_label("New priority").select_option("CRITICAL")
        visit.press("Set priority")
        visit.is_told("2 jobs moved")
        levels = [world.api("GET", f"{JOBS}/{id}")["priority"] for id in (first, second, third)]
        assert levels == ["CRITICAL", "NORMAL", "CRITICAL"]

    def test_nothing_is_done_to_no_jobs_and_the_filter_stays(self, visit: Visit) -> None:
        visit.go("/jobs?queue=parked")
        visit.press("Continue")
        visit.is_told("No job is selected")
        expect(visit.page).to_have_url(re.compile(r"/jobs\?queue=parked$"))
        expect(visit.page.get_by_label("Queue", exact=True)).to_have_value("parked")

    @covers("/jobs/{id}/payload", "/jobs/{id}/result")
    def test_a_long_payload_and_result_are_downloaded_whole(self, visit: Visit, world: World) -> None:
        payload = {"text": "x" * 100_000}
        id = world.enqueue("quick", payload)
        world.wait_for("done", id)
        visit.go(f"/jobs/{id}")
        for number, name in enumerate(("payload", "result")):
            with visit.page.expect_download() as found:
                visit.main.get_by_role("link", name="Download all of it").nth(number).click()
            assert found.value.suggested_filename == f"job-{id}-{name}.json"
            assert msgspec.json.decode(found.value.path().read_bytes()) == payload

    @covers("/do/jobs/{id}/priority")
    def test_the_priority_of_a_job_is_changed(self, visit: Visit, world: World) -> None:
        id = world.enqueue("one-moved")
        visit.go(f"/jobs/{id}")
        visit.page.get_by_label("Priority").select_option("HIGH")
        visit.press("Set priority")
        visit.is_told("has priority HIGH now")
        expect(visit.main.locator("dl.facts")).to_contain_text("high", timeout=PATIENCE)
        assert world.api("GET", f"{JOBS}/{id}")["priority"] == "HIGH"

    @covers("/do/jobs/{id}/cancel")
    def test_a_running_job_is_cancelled_and_its_handler_stops(self, visit: Visit, world: World) -> None:
        id = world.enqueue("slow")
        visit.go(f"/jobs/{id}")
        visit.shows("the first quarter")
        visit.press("Cancel")
        visit.confirm("Cancel the job")
        visit.is_told(f"Job {id} was cancelled")
        visit.shows("and will not run")
        world.wait_for_file(f"cancelled-{id}")
        assert world.state(id) not in ("ready", "delayed", "taken")

    def test_a_delayed_job_is_started_now(self, visit: Visit, world: World) -> None:
        id = world.enqueue("quick", "later", delay=3600)
        visit.go(f"/jobs/{id}")
        visit.press("Start now")
        visit.is_told(f"Job {id} is")  # ready; or done already
        expect(visit.main.locator(".head .state")).to_have_text("done", timeout=PATIENCE)

    @covers("/do/jobs/{id}/retry", "/do/jobs/{id}/delete")
    def test_a_dead_job_tells_its_error_and_is_retried_and_deleted(self, visit: Visit, world: World) -> None:
        id = world.enqueue("orders", {"n": 77, "lot": "one"})
        world.wait_for("dead", id)
        visit.go(f"/jobs/{id}")
        visit.shows("CardDeclined: card 77 was declined")
        visit.page.get_by_text("Traceback").first.click()
        expect(visit.page.get_by_role("region", name="Traceback").first).to_contain_text("shop.py")
        world.mend("one")
        visit.press("Retry")
        expect(visit.main.locator(".head .state")).to_have_text("done", timeout=PATIENCE)
        visit.press("Delete")
        visit.confirm("Delete the job")
        visit.is_told(f"Job {id} was deleted")
        assert world.state(id) is None

    def test_why_a_job_is_not_running_is_shown(self, visit: Visit, world: World) -> None:
        visit.go(f"/jobs/{world.seen['waiting']}")
        visit.shows("Why it is not running")
        visit.shows("No running worker handles parked")


class Dead:
    """Dead letters."""

    @covers("/do/dead/replay", "/do/dead/{id}/replay")
    def test_a_group_is_replayed(self, visit: Visit, world: World) -> None:
        made = world.enqueue_many("orders", [{"says": "the till is empty", "lot": "till"} for _ in range(4)])
        world.wait_for("dead", *made)
        world.mend("till")
        visit.go("/dead")
        group = visit.main.locator("li.card").filter(has_text="the till is empty")
        visit.press("Try one", group)
        visit.is_told("is ready again")
        world.wait_for("done", made[-1])
        group.get_by_role("link", name="Replay …").click()
        visit.page.get_by_label("At most, jobs a second").fill("100")
        visit.press("Replay 3 dead letters")
        visit.is_told("at most 100 a second")
        world.wait_for("done", *made)
        expect(group).to_have_count(0, timeout=PATIENCE)
        visit.fits()

    @covers("/do/dead/delete")
    def test_a_slow_replay_is_stopped_and_what_is_left_deleted(self, visit: Visit, world: World) -> None:
        made = world.enqueue_many("orders", [{"says": "out of ink"} for _ in range(5)])
        world.wait_for("dead", *made)
        visit.go("/dead")
        group = visit.main.locator("li.card").filter(has_text="out of ink")
        group.get_by_role("link", name="Replay …").click()
        visit.page.get_by_label("At most, jobs a second").fill("0,01")
        visit.main.get_by_role("button", name="Replay 5 dead letters").click()
        expect(visit.page).to_have_url(re.compile(r"/bulk/"))
        visit.shows("at most 0.01 a second")
        visit.is_usable_by_all()
        visit.press("Stop")
        visit.confirm("Stop it")
        visit.is_told("Stopped.")
        expect(visit.main.locator(".state").first).to_have_text("stopped", timeout=PATIENCE)
        visit.go("/dead")
        visit.press("Delete", group)
        visit.confirm("Delete them")
        expect(visit.page).to_have_url(re.compile(r"/bulk/"))
        expect(visit.main.locator(".state").first).to_have_text("finished", timeout=PATIENCE)
        visit.go("/dead")
        expect(group).to_have_count(0)

    def test_the_dead_letters_of_one_queue_are_found_from_the_overview(self, visit: Visit, world: World) -> None:
        visit.go("/?q=orders")
        visit.main.locator("tr#queue-orders td[data-label=Dead] a").click()
        visit.shows("Causes that occur in the queue orders")
        expect(visit.main.locator("li.card").filter(has_text="BankIsClosed")).to_be_visible()
        visit.fits()
        visit.go("/dead?queue=quick")
        visit.shows("No dead letters in quick.")
        visit.main.get_by_role("link", name="All queues").click()
        expect(visit.main.locator("li.card").filter(has_text="BankIsClosed")).to_be_visible()

    def test_a_rate_that_is_none_is_refused_in_words(self, visit: Visit) -> None:
        visit.go("/dead/replay")
        visit.page.get_by_label("At most, jobs a second").fill("quick")
        visit.main.get_by_role("button", name=re.compile("^Replay")).click()
        visit.is_told("must be jobs a second")
        visit.forgive("status of 422")


class Queues:
    """Pausing, resuming, purging."""

    @covers("/do/queues/{queue}/pause")
    def test_a_queue_is_paused_with_a_note_and_resumed(self, visit: Visit, world: World) -> None:
        visit.go("/queues/quick")
        visit.press("Pause …")
        visit.page.get_by_label("For how long").select_option("1h")
        visit.page.get_by_label("Why, for people who ask").fill("the provider is down")
        visit.confirm("Pause")
        visit.is_told("quick is paused for 1 h")
        visit.shows("the provider is down")
        visit.shows("Paused by the-admin")
        id = world.enqueue("quick", 1)
        other = world.enqueue("orders", {"n": 5})
        world.wait_for("dead", other)
        assert world.state(id) == "ready"
        visit.press("Resume")
        visit.is_told("quick resumed")
        expect(visit.main.get_by_role("button", name="Pause …")).to_be_visible(timeout=PATIENCE)
        world.wait_for("done", id)

    @covers("/do/queues/{queue}/lanes")
    def test_a_lane_gets_more_places_is_paused_and_reset(self, visit: Visit, world: World) -> None:
        world.api("PATCH", "/api/v1/queues/shops/lanes", {"limit": 1})
        first, second = world.enqueue_many("shops", [1, 2], lane="anna's shop")
        visit.go("/queues/shops")
        visit.main.get_by_role("link", name="Lanes").click()
        visit.main.get_by_role("link", name="Change the limit of anna's shop").click()
        visit.page.get_by_label("Jobs in line or running at once; 0 pauses it").fill("2")
        visit.press("Set limit")
        visit.is_told("Lane anna's shop may have 2 in line or running at once.")
        world.wait_for("ready", first, second)
        visit.page.get_by_label("Jobs in line or running at once; 0 pauses it").fill("0")
        visit.press("Set limit")
        visit.is_told("Lane anna's shop is paused")
        expect(visit.main.locator("td[data-label=Limit] .state")).to_have_text("paused", timeout=PATIENCE)
        visit.press("Reset")
        visit.is_told("What was changed for lane anna's shop is forgotten.")
        world.wait_for("held", second)

    @covers("/do/queues/{queue}/lanes/shared")
    def test_limits_are_shared_with_another_queue_and_no_more(self, visit: Visit, world: World) -> None:
        for queue in ("trade", "trade.abroad"):
            world.api("PATCH", f"/api/v1/queues/{queue}/lanes", {"limit": 1})
        world.api("PATCH", "/api/v1/queues/trade.abroad/lanes", {"shared": "trade"})
        world.enqueue("trade.abroad", 1, lane="anna")
        held = world.enqueue("trade", 1, lane="anna")
        visit.go("/queues/trade/lanes")
        visit.main.get_by_text("Share limits with other queues").click()
        visit.page.get_by_label("A name; queues with the same name share their limits").fill("trade")
        visit.press("Share")
        world.wait_for("held", held)
        visit.is_told("trade shares its limits as trade, with trade.abroad.")
        visit.go("/queues/trade/lanes")
        visit.main.get_by_text("Share limits with other queues").click()
        visit.press("Stop sharing")
        world.wait_for("ready", held)

    @covers("/do/queues/{queue}/pause-now", "/do/queues/{queue}/resume")
    def test_a_queue_is_paused_and_resumed_from_the_overview(self, visit: Visit, world: World) -> None:
        world.enqueue("held")
        visit.go("/?q=held")
        row = visit.main.locator("tr#queue-held")
        visit.page.get_by_title("Pause held").click()
        expect(row.locator(".state")).to_have_text("paused", timeout=PATIENCE)
        visit.page.get_by_title("Resume held").click()
        expect(row.locator(".state")).not_to_have_text("paused", timeout=PATIENCE)

    @covers("/do/queues/{queue}/purge")
    def test_a_queue_is_purged_only_by_who_types_its_name(self, visit: Visit, world: World) -> None:
        world.enqueue_many("purged", range(3))
        visit.go("/queues/purged")
        for name, told in (("purge", "type the name of the queue"), ("purged", "3 ready jobs of purged are deleted")):
            visit.press("Purge …")
            visit.page.get_by_label("Which").select_option("ready")
            visit.page.get_by_label("Type purged to be sure").fill(name)
            visit.confirm("Delete them")
            visit.is_told(told)
        visit.forgive("status of 422")

    def test_charts_are_drawn_over_three_spans(self, visit: Visit) -> None:
        visit.go("/queues/quick")
        chart = visit.main.locator("figure canvas").first
        expect(chart).to_be_visible(timeout=30_000)  # the first points are written after 15 s
        spans = visit.main.get_by_role("navigation", name="Span of the charts")
        for span in ("24 h", "7 d", "1 h"):
            link = spans.get_by_role("link", name=span, exact=True)
            link.click()
            expect(link).to_have_attribute("aria-current", "page")
            expect(chart.or_(visit.main.get_by_text("No history yet"))).to_be_visible()
        expect(chart).to_be_visible()


class Others:
    """Workers, schedules, webhooks."""

    @covers("/do/workers/{id}/drain", "/do/workers/{id}/undrain")
    def test_a_worker_is_drained_and_let_work_again(self, visit: Visit, world: World) -> None:
        visit.go("/workers")
        visit.press("Drain")
        visit.confirm("Drain it")
        visit.is_told("takes nothing more")
        expect(visit.main.locator("li.card .state")).to_have_text("draining", timeout=PATIENCE)
        id = world.enqueue("quick", 1)
        visit.press("Let it take jobs again")
        visit.is_told("takes jobs again")
        expect(visit.main.locator("li.card .state")).not_to_have_text("draining", timeout=PATIENCE)
        world.wait_for("done", id)

    @covers("/do/schedules/{id}/trigger", "/do/schedules/{id}/pause", "/do/schedules/{id}/resume")
    def test_a_schedule_is_triggered_paused_and_resumed(self, visit: Visit, world: World) -> None:
        visit.go("/schedules")
        row = visit.main.locator("tr").filter(has_text="newsletter")
        expect(row).to_contain_text("07:00")
        visit.press("Pause", row)
        visit.is_told("newsletter is paused")
        visit.press("Resume", row)
        visit.is_told("newsletter resumed")
        visit.press("Run now", row)
        visit.is_told("Triggered newsletter manually")
        expect(visit.page).to_have_url(re.compile(r"/jobs/\d+$"))
        expect(visit.main.locator(".head .state")).to_have_text("done", timeout=PATIENCE)
        visit.go("/schedules/newsletter")
        expect(visit.main.locator("table tbody tr")).to_have_count(1)

    @covers("/do/schedules/{id}/delete")
    def test_a_schedule_is_deleted(self, visit: Visit, world: World) -> None:
        world.api("POST", "/api/v1/schedules", {"name": "extra", "queue": "quick", "every": 3600})
        visit.go("/schedules/extra")
        visit.press("Delete")
        visit.confirm("Delete the schedule")
        visit.is_told("extra was deleted")
        expect(visit.page).to_have_url(re.compile(r"/schedules$"))

    @covers("/do/deliveries/{id}/again")
    def test_a_webhook_is_called_again(self, visit: Visit, world: World) -> None:
        id = world.enqueue("quick", webhookUrl="https://127.0.0.1/ended")  # which is refused: it is this machine
        world.wait_for("done", id)
        visit.go(f"/jobs/{id}")
        visit.press("Send again")
        visit.is_told("The webhook is called again")

    def test_the_budget_and_the_demand_tell_who_waits(self, visit: Visit) -> None:
        visit.go("/budgets")
        visit.shows("of 2 tokens left")
        visit.go("/demands/deals")
        expect(visit.main.locator("table").first).to_be_visible(timeout=PATIENCE)


class Doors:
    """Who may do what."""

    def test_a_token_logs_in_and_a_wrong_one_does_not(self, open_window: Callable[..., Visit], world: World) -> None:
        visit = open_window(None)
        visit.go("/jobs?state=dead")
        expect(visit.page.get_by_role("heading", level=1)).to_have_text("Log in")
        visit.page.get_by_label("Token").fill("acc_wrong")
        visit.press("Log in")
        expect(visit.page.get_by_role("alert")).to_be_visible()
        visit.forgive("status of 401")
        visit.page.get_by_label("Token").fill(world.tokens["admin"])
        visit.press("Log in")
        expect(visit.page).to_have_url(re.compile(r"/jobs\?state=dead$"))
        (cookie,) = [each for each in visit.context.cookies() if each["name"] == "accoda"]
        assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
        visit.page.get_by_role("button", name="Log out").click()
        expect(visit.page.get_by_role("heading", level=1)).to_have_text("Log in")
        visit.go("/workers")
        expect(visit.page).to_have_url(re.compile(r"/login\?next=%2Fworkers$"))

    @pytest.mark.parametrize("how", ["a token that may only read", "a service that is read-only"])
    def test_who_may_only_look_finds_nothing_to_press(
        self, open_window: Callable[..., Visit], world: World, how: str
    ) -> None:
        if how == "a token that may only read":
            self._look_around(open_window("read"), world)
            return
        with Service(world.folder, world.url, "--read-only", "--no-system-jobs") as service:
            visit = open_window("admin", service.address)
            self._look_around(visit, world)
            expect(visit.page.get_by_text("read-only", exact=True)).to_be_visible()
            visit.check()
            visit.page.goto("about:blank")  # its stream ends before the service does
            visit.page.evaluate("window.hurt = []")

    def _look_around(self, visit: Visit, world: World) -> None:
        seen = world.seen
        paths = ["/", "/queues/parked", "/jobs?state=dead", f"/jobs/{seen['dead']}", f"/jobs/{seen['waiting']}"]
        for path in [
            *paths,
            "/dead",
            "/workers",
            "/schedules",
            "/schedules/newsletter",
            "/bulk?action=retry&state=dead",
        ]:
            visit.go(path)
            expect(visit.main.locator("form[method=post], [data-dialog]")).to_have_count(0)
        status = visit.page.evaluate(
            "async id => (await fetch(`/do/jobs/${id}/delete`, {method: 'POST', "
            "headers: {'Content-Type': 'application/x-www-form-urlencoded'}, body: ''})).status",
            seen["dead"],
        )
        assert status == 403 and world.state(seen["dead"]) == "dead"
        visit.forgive("status of 403")


class PageActions(Jobs, Dead, Queues, Others, Doors):
    """All of them."""
