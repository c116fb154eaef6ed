"""What holds for every page: nothing complains, it is accessible, it fits, and strangers' texts are only texts."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from browser_visit import Visit
from browser_world import World
from playwright.sync_api import expect

PAGES = {
    "overview": "/",
    "overview filtered": "/?q=qu",
    "queue": "/queues/parked",
    "queue over a day": "/queues/orders?span=24h",
    "queue of a demand": "/queues/deals",
    "lanes": "/queues/tenants/lanes?lane=anna",
    "lanes that are none": "/queues/parked/lanes",
    "jobs": "/jobs",
    "jobs filtered": "/jobs?queue=orders&state=dead&error=declined",
    "jobs that are none": "/jobs?queue=nowhere",
    "jobs wrongly filtered": "/jobs?state=odd",
    "job that is dead": "/jobs/{dead}",
    "job that is done": "/jobs/{done}",
    "job that runs": "/jobs/{running}",
    "job that waits": "/jobs/{waiting}",
    "job that is delayed": "/jobs/{delayed}",
    "job that is held": "/jobs/{held}",
    "job of a flow": "/jobs/{in_flow}",
    "flows": "/flows",
    "flows that are none": "/flows?state=expired",
    "flow": "/flows/order",
    "flow that failed": "/flows/failed",
    "flow that is folded": "/flows/wide",
    "dead letters": "/dead",
    "dead letters of a queue": "/dead?queue=orders",
    "replay": "/dead/replay",
    "bulk action to confirm": "/bulk?action=priority&which=matching&queue=parked",
    "bulk actions": "/bulk",
    "workers": "/workers",
    "schedules": "/schedules",
    "schedule": "/schedules/newsletter",
    "schedule that ran": "/schedules/clean-up",
    "budgets": "/budgets",
    "demands": "/demands",
    "demand": "/demands/deals",
}
STRANGE = (
    '<img src=x onerror="window.stranger=1"><script>window.stranger=1</script>"\'`{{7*7}}${7*7}</script></pre>&#x3c;'
    "\u202egnp.exe\u202c \u200f\u05e9\u05dc\u05d5\u05dd 👩‍👩‍👧‍👦🏴‍☠️ Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞"
)
LONGEST_QUEUE = "q" * 128


class Stored:
    """Tests of what pages show of a store."""

    def test_texts_of_strangers_run_nowhere_and_break_no_layout(self, visit: Visit, world: World) -> None:
        long = STRANGE + "\0\a\x7f" + "W" * 10_000
        payload = {STRANGE: long, "list": [long, STRANGE], "wide": "x" * 10_000}
        waits = world.enqueue(LONGEST_QUEUE, payload, name=STRANGE[:200], key=STRANGE.ljust(512, "k"))
        dies = world.enqueue("orders", {"says": STRANGE + "R" * 10_000}, name="W" * 200)
        done = world.enqueue("quick", payload, name="\u202e" + "desrever")
        world.wait_for("dead", dies)
        world.wait_for("done", done)
        visit.go(f"/queues/{LONGEST_QUEUE}")
        visit.press("Pause …")
        visit.page.get_by_label("Why, for people who ask").fill((STRANGE + "N" * 500)[:500])
        visit.confirm("Pause")
        visit.shows("Paused by")
        paths = ["/", "/jobs", "/dead", "/dead/replay", "/workers", f"/queues/{LONGEST_QUEUE}", "/queues/orders"]
        paths += [f"/jobs/{id}" for id in (waits, dies, done)]
        paths += [f"/jobs?{urlencode({field: STRANGE})}" for field in ("key", "error", "name", "field")]
        paths += [f"/?{urlencode({'q': STRANGE})}", f"/bulk?{urlencode({'action': 'retry', 'error': STRANGE})}"]
        for path in paths:
            visit.go(path)
            visit.fits()
        visit.check()


class EveryPageBriefly:
    """For a storage on which the pages are only looked at."""

    def test_every_page_is_shown_without_a_complaint(self, visit: Visit, world: World) -> None:
        for path in PAGES.values():
            visit.go(path.format(**world.seen))
            expect(visit.page.get_by_role("heading", level=1)).to_have_count(1)
            visit.check()


class EveryPage:
    """Tests of what all pages share. Once: what a page is made of does not depend on the storage."""

    @pytest.mark.parametrize("name", PAGES)
    def test_a_page_can_be_used_by_all_and_fits_everywhere(self, visit: Visit, world: World, name: str) -> None:
        visit.go(PAGES[name].format(**world.seen))
        expect(visit.page.get_by_role("heading", level=1)).to_have_count(1)
        visit.is_usable_by_all()
        visit.fits()

    def test_a_page_that_is_not_there_is_told_in_the_same_design(self, visit: Visit) -> None:
        for path, status in (("/jobs/999999", 404), ("/schedules/none", 404), ("/queues/parked?span=year", 422)):
            reply = visit.page.goto(path)
            assert reply is not None and reply.status == status
            expect(visit.page.get_by_role("link", name="To the overview")).to_be_visible()
            visit.is_usable_by_all()
            visit.fits()
        visit.forgive(r"status of 4(04|22)")

    def test_a_telephone_shows_tables_as_cards(self, visit: Visit) -> None:
        visit.page.set_viewport_size({"width": 390, "height": 844})
        visit.go("/jobs")
        cell = visit.main.locator("tbody tr").first.locator("td[data-label=State]")
        assert cell.evaluate("node => getComputedStyle(node, '::before').content") == '"State"'
        visit.page.get_by_role("navigation", name="Pages").get_by_role("link", name="Demands").click()
        expect(visit.page.get_by_role("heading", level=1)).to_have_text("Demands")

    def test_light_and_dark_are_chosen_by_hand_and_kept(self, visit: Visit) -> None:
        visit.go("/")
        ground = "getComputedStyle(document.body).backgroundColor"
        light = visit.page.evaluate(ground)
        visit.page.get_by_role("button", name="Light or dark").click()
        dark = visit.page.evaluate(ground)
        visit.go("/jobs")
        assert visit.page.evaluate(ground) == dark != light

    def test_dialogs_can_be_used_by_all(self, visit: Visit, world: World) -> None:
        for path, button in (("/queues/parked", "Pause …"), ("/queues/parked", "Purge …"), ("/workers", "Drain")):
            visit.go(path)
            visit.press(button)
            expect(visit.page.get_by_role("dialog")).to_be_visible()
            visit.is_usable_by_all()
            visit.fits()
            visit.page.keyboard.press("Escape")
            expect(visit.page.get_by_role("dialog")).to_be_hidden()

    def test_who_is_not_logged_in_is_asked_for_a_token(self, open_window: Callable[..., Visit]) -> None:
        visit = open_window(None)
        visit.go("/jobs?state=dead")
        expect(visit.page.get_by_role("heading", level=1)).to_have_text("Log in")
        visit.is_usable_by_all()
        visit.fits()
