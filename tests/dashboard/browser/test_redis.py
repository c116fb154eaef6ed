"""The dashboard in a browser, over a store in Redis."""

from collections.abc import Callable
from urllib.parse import urlsplit

from browser_visit import PATIENCE, Visit
from browser_world import Service, World
from everything import WhatIsStored
from playwright.sync_api import expect
from proof.proxy import Proxy


class TestRedis(WhatIsStored):
    storage = "redis"

    def test_a_store_that_hangs_is_told_beside_what_it_showed(
        self, open_window: Callable[..., Visit], world: World
    ) -> None:
        world.enqueue("hung")
        port = urlsplit(world.url).port
        assert port is not None
        with Proxy(port) as proxy:
            url = world.url.replace(f":{port}", f":{proxy.port}")
            with Service(world.folder, url, "--no-system-jobs") as service:
                visit = open_window("admin", service.address)
                visit.page.clock.install()
                visit.go("/queues/hung")
                visit.is_live()
                with proxy.during(hold=True):  # connected, and silent
                    visit.page.clock.fast_forward(6_000)
                    expect(visit.page.locator("#pulse")).to_contain_text("stale since", timeout=PATIENCE)
                visit.is_live()
                visit.check()
                visit.page.goto("about:blank")  # its stream ends before the service does
                visit.page.evaluate("window.hurt = []")
