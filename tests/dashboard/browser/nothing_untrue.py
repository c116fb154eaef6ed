"""What a page shows is so: points are drawn, names are whole, silence is told, and no button takes another's place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from browser_visit import NARROW, PATIENCE, WIDE, Visit
from browser_world import Service, World
from playwright.sync_api import expect

from accoda.operations.history.recorder import PREFIX
from accoda.operations.history.ring import FINE, QUEUE, SHAPES, STEP, Ring
from accoda.operations.moments import now_of
from accoda.storage.open import open_storage

# The most pixels of a series' colour above each other: of a flat line two or three, of a dot five.
TALLEST = """([canvas, name]) => {
  const probe = Object.assign(document.createElement("canvas"), {width: 1, height: 1}).getContext("2d");
  probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
  probe.fillRect(0, 0, 1, 1);
  const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let tallest = 0;
  for (let x = 0; x < canvas.width; x++)
    for (let y = 0, run = 0; y < canvas.height; y++) {
      const at = 4 * (y * canvas.width + x);
      const near = [red, green, blue].every((part, n) => Math.abs(part - data[at + n]) < 24);
      run = near && data[at + 3] > 100 ? run + 1 : 0;
      tallest = Math.max(tallest, run);
    }
  return tallest;
}"""
UNDER = "([x, y]) => document.elementFromPoint(x, y)?.closest('button')?.className ?? ''"


class NothingUntrue:
    """Tests of what was once shown wrongly."""

    def test_runs_that_are_rare_are_drawn_as_dots(self, visit: Visit, world: World) -> None:
        world.enqueue("rare")
        _record_rare_runs(world)
        visit.go("/queues/rare")
        canvas = visit.main.locator("#chart-times canvas")
        expect(canvas).to_be_visible()
        for color in ("--calm", "--accent"):
            assert canvas.evaluate(f"(node, name) => ({TALLEST})([node, name])", color) >= 4
        visit.forgive("willReadFrequently")

    def test_the_name_of_a_queue_is_not_broken(self, visit: Visit, world: World) -> None:
        for n in range(3):
            world.enqueue("unbroken", {"customer": "x" * 300}, name=f"A report with a rather long name, number {n}")
        visit.go("/jobs?queue=unbroken")
        link = visit.main.locator("td.queue a").first
        assert link.evaluate("node => node.getBoundingClientRect().height") < 30
        visit.fits()

    def test_keys_from_right_to_left_stay_before_their_values(self, visit: Visit, world: World) -> None:
        id = world.enqueue("parked", {"\u05e9\u05dd": "\u05d0\u05e0\u05d4", "a": "\u05d1"})
        visit.go(f"/jobs/{id}")
        lefts = "nodes => nodes.map(node => node.getBoundingClientRect().left)"
        key, value, _ = visit.main.locator("pre.json bdi").evaluate_all(lefts)
        assert key < value

    def test_no_button_that_does_harm_comes_under_the_pointer(self, visit: Visit, world: World) -> None:
        id = world.enqueue("orders", {"n": 5, "lot": "pointer"})
        world.wait_for("dead", id)
        world.mend("pointer")
        world.api("POST", "/api/v1/queues/orders/pause", {})
        try:
            visit.go(f"/jobs/{id}")
            visit.is_live()
            places = []
            for size in (NARROW, WIDE):
                visit.page.set_viewport_size(size)
                box = visit.main.get_by_role("button", name="Retry", exact=True).bounding_box()
                assert box is not None
                places.append((size, [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]))
            visit.press("Retry")
            self._is_safe(visit, places, "ready")
        finally:
            world.api("POST", "/api/v1/queues/orders/resume")
        self._is_safe(visit, places, "done")

    def _is_safe(self, visit: Visit, places: list[tuple[object, list[float]]], state: str) -> None:
        expect(visit.main.locator(".head .state")).to_have_text(state, timeout=PATIENCE)
        for size, place in places:
            visit.page.set_viewport_size(size)  # type: ignore[arg-type]
            assert "main" in visit.page.evaluate(UNDER, place), (state, size)

    def test_a_service_that_is_gone_is_told_beside_what_it_showed_and_to_whom_acts(
        self, open_window: Callable[..., Visit], world: World
    ) -> None:
        world.enqueue("unanswered")
        with Service(world.folder, world.url, "--no-system-jobs") as service:
            visit = open_window("admin", service.address)
            visit.page.clock.install()
            visit.go("/queues/unanswered")
            visit.is_live()
        visit.press("Pause …")
        visit.confirm("Pause")
        visit.is_told("The server did not answer. Nothing is known about “Pause”")
        pulse = visit.page.locator("#pulse")
        expect(pulse).not_to_contain_text("live")
        visit.page.clock.fast_forward(6_000)
        expect(pulse).to_contain_text("stale since")
        visit.forgive("ERR_|Failed to fetch|htmx:error|net::")
        visit.page.goto("about:blank")
        visit.page.evaluate("window.hurt = []")
        visit.forgive("ERR_|Failed to fetch|htmx:error|net::")


def _record_rare_runs(world: World) -> None:
    """Three runs of the queue `rare`, minutes apart, as the recorder writes them."""

    async def write() -> None:
        async with await open_storage(world.url) as store:
            slot = await now_of(store) // STEP
            ring = Ring(QUEUE, SHAPES[FINE].size)
            for ago in (20, 60, 100):
                ring.put(slot - ago, (1, 0, 0, 0, 1, 0, 0, 0, 0, 2.0, 1.0, 1))
            await store.write(f"{PREFIX}rare/{FINE}", ring.encode())

    # In a thread: Playwright keeps an event loop in this one.
    thread = threading.Thread(target=lambda: asyncio.run(write()))
    thread.start()
    thread.join()
