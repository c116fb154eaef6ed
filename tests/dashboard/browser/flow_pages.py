"""Flows in the browser: they are stopped and repaired with a mouse, and their graph is read, zoomed and unfolded."""

from __future__ import annotations

from browser_visit import PATIENCE, Visit
from browser_world import World
from covers import covers
from playwright.sync_api import expect


class FlowPages:
    """What can be done with a flow."""

    @covers("/flows/{id}", "/do/flows/{id}/retry")
    def test_a_failed_flow_goes_on_when_its_dead_jobs_are_retried(self, visit: Visit, world: World) -> None:
        world.wait_for("done", world.enqueue("flows", {"id": "mended"}))
        visit.go("/flows/mended")
        state = visit.main.locator(".head .state")
        expect(state).to_have_text("failed", timeout=PATIENCE)
        visit.shows("The flow cannot go on.")
        world.mend("mended")
        visit.press("Retry dead jobs")
        visit.is_told("1 dead job of mended will run again.")
        expect(state).to_have_text("done", timeout=PATIENCE)
        expect(visit.main.get_by_role("button", name="Retry dead jobs")).to_be_disabled()

    @covers("/do/flows/{id}/cancel")
    def test_a_running_flow_is_cancelled(self, visit: Visit, world: World) -> None:
        world.wait_for("done", world.enqueue("flows", {"id": "stopped", "runs": True}))
        visit.go("/flows/stopped")
        visit.is_live()
        visit.press("Cancel")
        visit.confirm("Cancel the flow")
        visit.is_told("stopped is being cancelled.")
        expect(visit.main.locator(".head .state")).to_have_text("cancelled", timeout=PATIENCE)

    @covers("/do/flows/{id}/close")
    def test_a_batch_whose_producer_is_gone_is_closed(self, visit: Visit, world: World) -> None:
        world.wait_for("done", world.enqueue("batches", "left-open"))
        visit.go("/flows/left-open")
        visit.is_live()
        visit.press("Close batch")
        visit.confirm("Close the batch")
        expect(visit.main.locator(".head .state")).to_have_text("done", timeout=PATIENCE)


class FlowGraph:
    """The graph. Once: it does not depend on the storage."""

    def test_a_node_tells_all_about_itself_on_hover_and_focus_and_leads_to_its_job(self, visit: Visit) -> None:
        visit.go("/flows/failed")
        dead = visit.main.locator(".node.dead")
        tip = visit.page.locator(".graph-tip")
        dead.hover()
        expect(tip).to_contain_text("in queue orders")
        expect(tip).to_contain_text("CardDeclined")
        visit.page.mouse.move(0, 0)
        expect(tip).to_be_hidden()
        dead.focus()
        expect(tip).to_be_visible()
        visit.page.keyboard.press("Enter")
        expect(visit.page.get_by_role("heading", level=1)).to_contain_text("Job")
        visit.shows("as charge of the flow failed")

    def test_the_graph_is_zoomed_by_buttons_and_the_wheel_and_stays_so(self, visit: Visit) -> None:
        visit.go("/flows/order")
        visit.is_live()
        drawing = visit.main.locator(".graph-box > svg")
        width = "node => node.getBoundingClientRect().width"
        whole = drawing.evaluate(width)
        visit.press("Larger")
        larger = drawing.evaluate(width)
        assert larger > whole
        drawing.hover()
        visit.page.keyboard.down("Control")
        visit.page.mouse.wheel(0, -200)
        visit.page.keyboard.up("Control")
        visit.page.wait_for_function(
            f"most => ({width})(document.querySelector('.graph-box > svg')) > most", arg=larger
        )
        most = drawing.evaluate(width)
        visit.page.evaluate("dispatchEvent(new Event('resize'))")
        visit.page.evaluate("new Promise(requestAnimationFrame)")
        assert drawing.evaluate(width) == most
        visit.press("Smaller")
        assert drawing.evaluate(width) < most
        visit.press("Fit")
        assert abs(drawing.evaluate(width) - whole) < 2

    def test_long_and_strange_names_break_no_layout(self, visit: Visit, world: World) -> None:
        strange = "<b onclick=alert(1)>\u202e\u05e9\u05dc"
        world.wait_for(
            "done", world.enqueue("flows", {"id": strange.ljust(200, "W"), "first": strange.ljust(200, "x")})
        )
        visit.go("/flows?state=failed")
        visit.fits()
        visit.main.get_by_role("link", name="WWWW").click()
        expect(visit.main.locator(".node")).to_have_count(4)
        visit.fits()
        visit.main.locator("#nodes a[href^='/jobs/']").first.click()
        visit.shows("Flow")
        visit.fits()

    def test_a_folded_box_is_unfolded_and_folded(self, visit: Visit) -> None:
        visit.go("/flows/wide")
        boxes = visit.main.locator(".node")
        expect(boxes).to_have_count(3, timeout=PATIENCE)
        visit.main.locator(".node.several").click()
        expect(boxes).to_have_count(63)
        visit.main.get_by_role("link", name="Fold again").click()
        expect(boxes).to_have_count(3)

    def test_a_node_that_ends_is_seen_to_end_and_the_zoom_stays(self, visit: Visit, world: World) -> None:
        world.wait_for("done", world.enqueue("flows", {"id": "seen", "runs": True}))
        visit.go("/flows/seen")
        visit.is_live()
        running = visit.main.locator(".node.running")
        expect(running).to_have_count(1, timeout=PATIENCE)
        visit.press("Larger")
        drawing = visit.main.locator(".graph-box > svg")
        before = drawing.get_attribute("width")
        world.open_gate(int((running.get_attribute("href") or "").rpartition("/")[2]))
        expect(running).to_have_count(0, timeout=PATIENCE)
        assert drawing.get_attribute("width") == before
