"""Pages that live: what changes is seen without a reload, nothing is lost by it, and keys are enough for all of it."""

from __future__ import annotations

import re
from collections.abc import Callable

from browser_visit import PATIENCE, Visit
from browser_world import World
from playwright.sync_api import expect

# What a browser tells a page that is hidden; without a screen it hides none.
HIDE = """hidden => {
  Object.defineProperty(document, "hidden", {configurable: true, get: () => hidden});
  Object.defineProperty(document, "visibilityState", {configurable: true, get: () => hidden ? "hidden" : "visible"});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


class Alive:
    """Tests of the stream."""

    def test_a_job_that_ends_is_seen_to_end_without_a_reload(self, visit: Visit, world: World) -> None:
        id = world.enqueue("gated")
        visit.go(f"/jobs/{id}")
        visit.is_live()
        state = visit.main.locator(".head .state")
        expect(state).to_have_text("running", timeout=PATIENCE)
        visit.shows("half of it")
        visit.page.evaluate("window.same = true")
        world.open_gate(id)
        expect(state).to_have_text("done", timeout=PATIENCE)
        visit.shows("through")
        assert visit.page.evaluate("window.same")

    def test_new_jobs_appear_in_lists_and_counts(
        self, visit: Visit, open_window: Callable[..., Visit], world: World
    ) -> None:
        world.enqueue("growing")
        counts = open_window()
        counts.go("/queues/growing")
        visit.go("/jobs?queue=growing")
        visit.is_live()
        world.enqueue("growing")
        expect(visit.main.locator("tbody tr[data-key]")).to_have_count(2, timeout=PATIENCE)
        expect(counts.main.locator(".tile").first.locator(".num").first).to_have_text("2", timeout=PATIENCE)

    def test_what_is_typed_ticked_opened_and_focused_stays(self, visit: Visit, world: World) -> None:
        first = world.enqueue("typed")
        visit.go("/jobs?queue=typed")
        visit.is_live()
        visit.page.get_by_label(f"Select job {first}", exact=True).check()
        visit.page.get_by_label("Action", exact=True).select_option("delete")
        visit.page.get_by_label("Error").fill("half a wo")
        world.enqueue("typed")
        expect(visit.main.locator("tbody tr[data-key]")).to_have_count(2, timeout=PATIENCE)
        expect(visit.page.get_by_label(f"Select job {first}", exact=True)).to_be_checked()
        expect(visit.page.get_by_label("Action", exact=True)).to_have_value("delete")
        expect(visit.page.get_by_label("Error")).to_have_value("half a wo")
        expect(visit.page.get_by_label("Error")).to_be_focused()

    def test_a_dialog_stays_open_whatever_comes_and_goes_around_it(self, visit: Visit, world: World) -> None:
        world.enqueue("around", delay=3600)
        visit.go("/queues/around")
        visit.is_live()
        visit.press("Purge …")
        sure = visit.page.get_by_label("Type around to be sure")
        sure.fill("aro")
        world.enqueue("around")  # no worker serves it: that it is stuck comes before the buttons
        expect(visit.main.locator(".head").first).to_contain_text("no worker", timeout=PATIENCE)
        expect(sure).to_have_value("aro")
        expect(sure).to_be_focused()

    def test_a_page_that_nobody_sees_stops_its_stream(self, visit: Visit, world: World) -> None:
        world.enqueue("unseen")
        with visit.page.expect_request(lambda request: "/live?" in request.url):
            visit.go("/jobs?queue=unseen")
        visit.is_live()
        with visit.page.expect_event("requestfailed", lambda request: "/live?" in request.url):
            visit.page.evaluate(HIDE, True)
        expect(visit.page.locator("#pulse")).to_have_text("paused")
        world.enqueue("unseen")
        with visit.page.expect_request(lambda request: "/live?" in request.url):
            visit.page.evaluate(HIDE, False)
        expect(visit.main.locator("tbody tr[data-key]")).to_have_count(2, timeout=PATIENCE)

    def test_another_window_sees_what_this_one_did(self, open_window: Callable[..., Visit], world: World) -> None:
        world.enqueue("shared")
        here, there = open_window(), open_window("read")
        there.go("/queues/shared")
        there.is_live()
        here.go("/queues/shared")
        here.press("Pause …")
        here.confirm("Pause")
        expect(there.main.locator(".banner")).to_contain_text("Paused by the-admin", timeout=PATIENCE)
        here.press("Resume")
        expect(there.main.locator(".banner")).to_have_count(0, timeout=PATIENCE)
        expect(there.main.get_by_role("button")).to_have_count(0)


class Keys:
    """Tests without a mouse."""

    def test_the_filter_is_reached_and_sent_by_keys(self, visit: Visit, world: World) -> None:
        id = world.enqueue("keyboard")
        visit.go("/jobs")
        visit.is_live()
        keys = visit.page.keyboard
        keys.press("/")
        expect(visit.page.get_by_label("Queue", exact=True)).to_be_focused()
        keys.type("keyboard")
        keys.press("Enter")
        expect(visit.page).to_have_url(re.compile("queue=keyboard"))
        visit.page.wait_for_load_state()
        visit.lists(id)

    def test_a_dialog_is_opened_and_confirmed_by_keys_and_the_focus_returns(self, visit: Visit, world: World) -> None:
        world.enqueue_many("by-hand", range(2))
        visit.go("/queues/by-hand")
        visit.is_live()
        keys, purge = visit.page.keyboard, visit.main.get_by_role("button", name="Purge …")
        self._tab_to(visit, "Purge …")
        keys.press("Enter")
        dialog = visit.page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        assert dialog.evaluate("node => node.contains(document.activeElement)")
        keys.press("Escape")
        expect(dialog).to_be_hidden()
        expect(purge).to_be_focused()
        keys.press("Enter")
        visit.page.get_by_label("Which").focus()
        keys.type("ready")
        keys.press("Tab")
        keys.type("by-hand")
        keys.press("Enter")
        visit.is_told("2 ready jobs of by-hand are deleted")
        expect(dialog).to_be_hidden()
        expect(purge).to_be_focused()

    def test_the_focus_is_not_lost_when_an_action_replaces_its_button(self, visit: Visit, world: World) -> None:
        world.enqueue("replaced")
        visit.go("/queues/replaced")
        visit.is_live()
        self._tab_to(visit, "Pause …")
        keys = visit.page.keyboard
        keys.press("Enter")
        visit.page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).focus()
        keys.press("Enter")
        expect(visit.main.get_by_role("button", name="Resume")).to_be_focused(timeout=PATIENCE)

    def test_pages_are_changed_by_keys(self, visit: Visit) -> None:
        visit.go("/")
        keys = visit.page.keyboard
        for key, title in (
            ("j", "Jobs"),
            ("d", "Dead letters"),
            ("w", "Workers"),
            ("s", "Schedules"),
            ("b", "Budgets"),
            ("m", "Demands"),
        ):
            visit.is_live()  # so its script is there too
            keys.press("g")
            keys.press(key)
            expect(visit.page.get_by_role("heading", level=1)).to_have_text(title)
        visit.is_live()
        keys.press("?")
        dialog = visit.page.get_by_role("dialog", name="Keys")
        expect(dialog).to_be_visible()
        keys.press("Escape")
        expect(dialog).to_be_hidden()
        keys.press("Tab")
        link = visit.page.get_by_role("link", name="Skip to the page")
        expect(link).to_be_focused()
        expect(link).to_be_in_viewport()
        keys.press("Enter")
        expect(visit.page.locator("main")).to_be_focused()

    def _tab_to(self, visit: Visit, name: str) -> None:
        """Go there with Tab alone, without a mouse."""
        button = visit.main.get_by_role("button", name=name, exact=True)
        for _ in range(40):
            visit.page.keyboard.press("Tab")
            if button.evaluate("node => node === document.activeElement"):
                return
        raise AssertionError(f"{name} cannot be reached with Tab")
