"""A browser window that writes down whatever must not happen in it, and looks at pages with the eyes of others."""

from __future__ import annotations

import re
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from axe_playwright_python.sync_playwright import Axe
from browser_world import World
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, Route, ViewportSize, expect

NARROW: ViewportSize = {"width": 390, "height": 844}
WIDE: ViewportSize = {"width": 1440, "height": 900}
PATIENCE = 15_000
"""Milliseconds that a page gets to show something; the machine may do other things too."""
AXE = Axe().axe_script
SCHEMES: dict[Literal["light", "dark"], dict[str, Any]] = {
    "light": {"resultTypes": ["violations"]},
    "dark": {"resultTypes": ["violations"], "runOnly": ["color-contrast", "link-in-text-block"]},
}
LISTEN = """
window.hurt = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.hurt.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});
"""
TOO_WIDE = """() => {
  const most = document.documentElement.clientWidth;
  const scrolls = (node) => node && (getComputedStyle(node).overflowX !== "visible" || scrolls(node.parentElement));
  const beyond = [...document.querySelectorAll("body *")].filter((node) => {
    const box = node.getBoundingClientRect();
    return box.width && box.right > most + 1 && !scrolls(node.parentElement);
  });
  const tables = [...document.querySelectorAll(".scroll")].filter((node) => node.scrollWidth > node.clientWidth + 1);
  const found = [...beyond, ...tables].slice(0, 5).map((node) => node.outerHTML.slice(0, 160));
  return [document.documentElement.scrollWidth, most, found];
}"""


class Visit:
    """A window of its own. `token`: who is logged in; None: no one."""

    def __init__(self, browser: Browser, world: World, token: str | None, address: str | None = None) -> None:
        self.world = world
        self.token = token
        self.address = address or world.service.address
        self.context = browser.new_context(viewport=WIDE, color_scheme="light", base_url=self.address)
        self.context.set_default_timeout(PATIENCE)
        self._log_in()
        self.context.add_init_script(LISTEN)
        self.context.route(re.compile(f"^(?!{re.escape(self.address)}/)"), self._stranger)
        self.context.on("request", self._request)
        self.page: Page = self.context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.troubles.append(f"page error: {error}"))
        self.page.on("dialog", self._dialog)
        self.hosts: set[str] = set()
        self.troubles: list[str] = []

    def _log_in(self) -> None:
        if self.token is not None:
            self.context.add_cookies([{"name": "accoda", "value": self.token, "url": self.address}])

    def _stranger(self, route: Route) -> None:
        """A request to another host: it does not leave."""
        self.troubles.append(f"a request to another host: {route.request.url}")
        route.abort()

    def _request(self, request: Request) -> None:
        at = urlsplit(request.url)
        self.hosts.add(at.netloc)
        if request.method == "POST":
            self.world.driven.add(unquote(at.path))
        elif request.is_navigation_request():
            self.world.visited.add(unquote(at.path))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def _dialog(self, dialog: Any) -> None:
        self.troubles.append(f"a script of a stranger ran: {dialog.message}")
        dialog.dismiss()

    def forgive(self, pattern: str) -> None:
        """What the browser says of an answer that the test has provoked."""
        self.troubles = [trouble for trouble in self.troubles if not re.search(pattern, trouble)]

    def check(self) -> None:
        """Nothing went wrong since the window was opened."""
        self._collect()
        troubles, self.troubles = self.troubles, []  # each is told once, also of a window that several tests use
        assert not troubles, troubles
        assert self.hosts <= {urlsplit(self.address).netloc}, self.hosts

    def _collect(self) -> None:
        """What the page has noticed of its policy; it forgets it when the window goes elsewhere."""
        self.troubles += [f"policy: {each}" for each in self.page.evaluate("window.hurt.splice(0)")]
        if self.page.evaluate("'stranger' in window"):
            self.troubles.append("a script of a stranger ran")

    def go(self, path: str) -> Page:
        """Look at a page that is there."""
        if self.page.url != "about:blank":
            self._collect()
        reply = self.page.goto(path)
        assert reply is not None and reply.status == 200, (path, reply and reply.status, reply and reply.text()[-500:])
        return self.page

    def clear(self) -> None:
        """As if it had just been opened: whatever this test left in it is gone."""
        if self.page.url.startswith(self.address):
            self.page.evaluate("localStorage.clear(); sessionStorage.clear()")
        self.page.goto("about:blank")
        self.page.set_viewport_size(WIDE)
        self.page.emulate_media(color_scheme="light")
        self.context.clear_cookies()
        self._log_in()
        self.troubles.clear()
        self.hosts.clear()

    def dispose(self) -> None:
        self.context.close()

    # -- what the tests do again and again

    @property
    def main(self) -> Locator:
        return self.page.get_by_role("main")

    def press(self, name: str, within: Locator | None = None) -> None:
        (within or self.main).get_by_role("button", name=name, exact=True).click()

    def confirm(self, name: str) -> None:
        """Press a button of the dialog that is open, which closes it."""
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_role("button", name=name, exact=True).click()
        expect(dialog).to_be_hidden()

    def is_told(self, text: str) -> None:
        """The service says what it did."""
        expect(self.page.locator("#said")).to_contain_text(text, timeout=PATIENCE)

    def shows(self, text: str | re.Pattern[str]) -> None:
        expect(self.main).to_contain_text(text, timeout=PATIENCE)

    def is_live(self) -> None:
        """The script runs, and the stream is open."""
        expect(self.page.locator("#pulse")).to_have_attribute("data-state", "live", timeout=PATIENCE)

    def ids(self) -> list[int]:
        """The jobs of the list, as it is at this moment."""
        return [int(text) for text in self._links.all_text_contents()]

    def lists(self, *ids: int) -> None:
        """The list holds these jobs and no other, in any order. An address changes before its page is there."""
        expect(self._links).to_have_count(len(ids), timeout=PATIENCE)
        for id in ids:
            expect(self._links.filter(has_text=re.compile(rf"^\s*{id}\s*$"))).to_have_count(1, timeout=PATIENCE)

    @property
    def _links(self) -> Locator:
        return self.main.locator("tbody tr[data-key] td.id a")

    # -- looking with the eyes of others

    def is_usable_by_all(self) -> None:
        """axe-core finds nothing serious: all of its rules in light, and in dark those that look at colours.

        Once: what a page is made of does not depend on the storage.
        """
        if self.world.storage != "sqlite":
            return
        self.page.evaluate(AXE)
        for scheme, options in SCHEMES.items():
            self.page.emulate_media(color_scheme=scheme)
            found = self.page.evaluate("options => axe.run(document, options)", options)["violations"]
            bad = [_told(each) for each in found if each["impact"] in ("serious", "critical")]
            assert not bad, (scheme, bad)
        self.page.emulate_media(color_scheme="light")

    def fits(self) -> None:
        """Neither the page nor a table in it has to be scrolled sideways, on a telephone and on a screen. Once, too."""
        if self.world.storage != "sqlite":
            return
        for size in (NARROW, WIDE):
            self.page.set_viewport_size(size)
            width, most, found = self.page.evaluate(TOO_WIDE)
            assert width <= most and not found, (size, width, most, found)


class Windows:
    """Windows that are kept for the next test, cleared: to open one takes longer than most of what is done in it."""

    def __init__(self, browser: Browser, world: World) -> None:
        self._browser, self._world = browser, world
        self._kept: list[Visit] = []

    def open(self, token: str | None, address: str | None) -> Visit:
        """`token`: which of the world's; None: not logged in. `address`: of another service of this world."""
        secret = token and self._world.tokens[token]
        where = address or self._world.service.address
        for visit in self._kept:
            if (visit.token, visit.address) == (secret, where):
                self._kept.remove(visit)
                return visit
        return Visit(self._browser, self._world, secret, where)

    def keep(self, visits: list[Visit]) -> None:
        for visit in visits:
            if visit.token is None or visit.address != self._world.service.address:
                visit.dispose()  # seldom needed, and its service may be gone
            else:
                visit.clear()
                self._kept.append(visit)

    def close(self) -> None:
        for visit in self._kept:
            visit.dispose()


def _told(violation: dict[str, Any]) -> tuple[str, str, list[str]]:
    nodes = [f"{node['html'][:200]} | {node.get('failureSummary', '')[:200]}" for node in violation["nodes"][:3]]
    return violation["id"], violation["help"], nodes
