"""Live pages: one rendering for many, sent when it changed, until the viewer leaves."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from dash import Dash, Stream
from proof.service import ServiceRunner

from accoda import App
from accoda.dashboard import live
from accoda.dashboard.live import LivePage, LivePages
from accoda.http.options import ServiceOptions
from accoda.http.security import Security, token_cache, tokens
from accoda.http.security.identity import SCOPES, Identity

READ, ADMIN = Identity("reader", frozenset({"read"})), Identity("admin", frozenset(SCOPES))


class Pages:
    """Counts what is rendered, and says what it is told to."""

    def __init__(self) -> None:
        self.rendered: list[str] = []
        self.text = "<p>one</p>"

    async def part(self, address: str, identity: Identity) -> str:
        self.rendered.append(address)
        if not self.text:
            raise RuntimeError("no page")
        return self.text


async def entered(live_pages: LivePages, address: str, identity: Identity) -> LivePage:
    page = live_pages.enter(address, identity)
    if not page.number:
        await asyncio.wait_for(asyncio.shield(page.next_event()), 5)
    return page


async def test_viewers_of_the_same_page_with_the_same_rights_share_a_rendering() -> None:
    pages = Pages()
    live_pages = LivePages(pages.part)
    same = [await entered(live_pages, "/", READ) for _ in range(50)]
    assert len(set(map(id, same))) == 1 and pages.rendered == ["/"]
    others = [await entered(live_pages, "/", ADMIN), await entered(live_pages, "/jobs", READ)]
    assert pages.rendered == ["/", "/", "/jobs"] and len(live_pages.pages) == 3
    for page in (*same, *others):
        live_pages.leave(page)
    assert not live_pages.pages and not live_pages.watchers


async def test_a_page_without_viewers_is_not_rendered_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 0.01)
    pages = Pages()
    live_pages = LivePages(pages.part)
    page = await entered(live_pages, "/", READ)
    while len(pages.rendered) < 3:
        await asyncio.sleep(0.01)
    live_pages.leave(page)
    rendered = len(pages.rendered)
    await asyncio.sleep(0.1)
    assert len(pages.rendered) == rendered


async def test_an_event_is_what_has_changed_and_not_the_time_that_passes() -> None:
    pages = Pages()
    live_pages = LivePages(pages.part)
    pages.text = '<p><time datetime="x">1 s ago</time></p>'
    page = await entered(live_pages, "/", READ)
    pages.text, told = '<p><time datetime="x">2 s ago</time></p>', page.next_event()
    await page.run_once()
    assert page.number == 1 and told.done()  # that it was rendered is told all the same
    pages.text = '<p><time datetime="y">2 s ago</time></p>'
    await page.run_once()
    assert page.number == 2 and b'datetime="y"' in page.event
    live_pages.leave(page)


async def test_what_is_changed_by_an_action_is_rendered_at_once() -> None:
    pages = Pages()
    live_pages = LivePages(pages.part)
    page = await entered(live_pages, "/", READ)
    pages.text, news = "<p>two</p>", page.next_event()
    live_pages.refresh()
    await asyncio.wait_for(asyncio.shield(news), 1.0)  # long before the two seconds are over
    assert b"two" in page.event
    live_pages.leave(page)


async def test_trouble_is_sent_once_and_goes_away() -> None:
    pages = Pages()
    live_pages = LivePages(pages.part)
    page = await entered(live_pages, "/", READ)
    pages.text = ""
    await page.run_once()
    await page.run_once()
    assert page.number == 2 and page.event.startswith(b"event: trouble\n") and b"no page" not in page.event
    pages.text = "<p>one</p>"
    await page.run_once()
    assert page.number == 3 and page.event.startswith(b"event: live\n")
    live_pages.leave(page)


async def test_many_pages_together_take_no_more_than_their_share() -> None:
    live_pages = LivePages(Pages().part)
    pages = [await entered(live_pages, f"/jobs?queue=q{number}", READ) for number in range(20)]
    for page in pages:
        page.took = 0.1
    assert live_pages._pause() == pytest.approx(20 * 0.1 / live.SHARE)
    for page in pages[1:]:
        live_pages.leave(page)
    assert live_pages._pause() == live.EVERY
    live_pages.leave(pages[0])


async def test_there_are_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_PAGES", 1)
    live_pages = LivePages(Pages().part)
    page = live_pages.enter("/", READ)
    assert live_pages.enter("/", READ) is page
    with pytest.raises(Exception, match="too many live pages"):
        live_pages.enter("/other", READ)
    live_pages.leave(page)
    live_pages.leave(page)


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 0.02)
    monkeypatch.setattr(live, "BEAT", 0.05)


def live_pages_of(service: ServiceRunner) -> LivePages:
    inner: Any = getattr(service.service, "inner", service.service)
    live_pages: LivePages = inner.dashboard.live_pages
    return live_pages


def until(true: Any) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_stream_sends_the_live_part_of_the_page_and_then_what_changes(dash: Dash) -> None:
    stream = Stream(dash.service)
    assert stream.answer.getheader("content-type") == "text/event-stream; charset=utf-8"
    name, text = stream.event()
    assert name == "live" and text.startswith('<section id="live" data-live') and "Nothing is queued yet" in text
    dash.done("/do/queues/emails/pause-now")
    name, text = stream.event()
    assert 'id="queue-emails"' in text and "paused" in text
    stream.close()


def test_a_client_that_leaves_is_noticed(dash: Dash, fast: None) -> None:
    live_pages = live_pages_of(dash.service)
    streams = [Stream(dash.service) for _ in range(3)]
    for stream in streams:
        stream.event()
    assert (live_pages.watchers, len(live_pages.pages)) == (3, 1)
    streams[0].close()
    until(lambda: live_pages.watchers == 2)
    for stream in streams[1:]:
        stream.close()
    until(lambda: not live_pages.pages)


def test_something_is_sent_to_a_client_when_nothing_happens(dash: Dash, fast: None) -> None:
    stream = Stream(dash.service)
    stream.event()
    assert stream.event() == ("same", "")
    stream.close()


def test_something_is_sent_to_a_client_while_a_page_is_not_rendered(
    dash: Dash, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "BEAT", 0.05)
    monkeypatch.setattr(live, "EVERY", 60.0)
    stream = Stream(dash.service)
    stream.event()
    assert stream.line().startswith(": ")
    stream.close()


def test_a_service_that_stops_lets_its_streams_go() -> None:
    with ServiceRunner(App("memory://")) as service:
        stream = Stream(service)
        stream.event()
        stopping = threading.Thread(target=service.stop)
        stopping.start()
        assert stream.rest().replace(live.SAME.decode(), "") == ""  # its end, and nothing torn off
        stopping.join(5)
        assert not stopping.is_alive(), "it does not wait for its grace to be over"
        stream.close()


@pytest.mark.parametrize("page", ["//evil.example", "", "jobs", "/%0d%0aX:1"])
def test_only_a_page_of_ours_can_be_watched(dash: Dash, page: str) -> None:
    assert dash.get(f"/live?page={page}").status == 422


def test_a_page_that_is_not_there_says_so_and_stays_quiet(dash: Dash) -> None:
    stream = Stream(dash.service, "/nothing")
    assert stream.event()[0] == "trouble"
    stream.close()


@pytest.fixture
def locked() -> Iterator[tuple[ServiceRunner, str]]:
    app = App("memory://")

    async def make() -> str:
        store = await app.connections.get()
        await tokens.create(store, "other", ["read"], now=0)  # without any token all may read
        return (await tokens.create(store, "reader", ["read"], now=0))[1]

    text = asyncio.run(make())
    with ServiceRunner(app, ServiceOptions(system_jobs=False, policy=Security(rate=1e6))) as service:
        yield service, text


def test_a_stream_ends_with_its_token(
    locked: tuple[ServiceRunner, str], fast: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_cache, "FRESH_FOR", 0.0)
    service, token = locked
    stream = Stream(service, Cookie=f"accoda={token}")
    assert stream.event()[0] == "live"

    async def revoke() -> None:
        await tokens.revoke(await service.app.connections.get(), token.split("_")[1])

    asyncio.run(revoke())
    stream.rest()  # comes to an end by itself
    stream.close()
    assert service.get("/live?page=/", Cookie=f"accoda={token}").status == 401
