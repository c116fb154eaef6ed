"""Live pages: one rendering for many, sent when it changed, until somebody leaves."""

import asyncio
import http.client
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from dash import Dash

from accoda import App
from accoda.dashboard import live
from accoda.dashboard.calls import Viewer
from accoda.dashboard.live import Hub, Rights, Room
from accoda.http.options import ServiceOptions
from accoda.http.security import Security, book, tokens
from accoda.testing.service import ServiceRunner

READ, ADMIN = Rights(frozenset({"read"})), Rights(frozenset(live.RIGHTS))


class Pages:
    """Counts what is rendered, and says what it is told to."""

    def __init__(self) -> None:
        self.rendered: list[str] = []
        self.text = "<p>one</p>"

    async def part(self, address: str, who: Viewer) -> str:
        self.rendered.append(address)
        if not self.text:
            raise RuntimeError("no page")
        return self.text


async def entered(hub: Hub, address: str, who: Viewer) -> Room:
    room = hub.enter(address, who)
    if not room.number:
        await asyncio.wait_for(asyncio.shield(room.news()), 5)
    return room


async def test_all_who_watch_the_same_page_with_the_same_rights_share_a_rendering() -> None:
    pages = Pages()
    hub = Hub(pages.part)
    rooms = [await entered(hub, "/", READ) for _ in range(50)]
    assert len(set(map(id, rooms))) == 1 and pages.rendered == ["/"]
    others = [await entered(hub, "/", ADMIN), await entered(hub, "/jobs", READ)]
    assert pages.rendered == ["/", "/", "/jobs"] and len(hub.rooms) == 3
    for room in (*rooms, *others):
        hub.leave(room)
    assert not hub.rooms and not hub.watchers


async def test_an_empty_room_renders_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 0.01)
    pages = Pages()
    hub = Hub(pages.part)
    room = await entered(hub, "/", READ)
    while len(pages.rendered) < 3:
        await asyncio.sleep(0.01)
    hub.leave(room)
    rendered = len(pages.rendered)
    await asyncio.sleep(0.1)
    assert len(pages.rendered) == rendered


async def test_news_are_what_has_changed_and_not_the_time_that_passes() -> None:
    pages = Pages()
    hub = Hub(pages.part)
    pages.text = '<p><time datetime="x">1 s ago</time></p>'
    room = await entered(hub, "/", READ)
    pages.text = '<p><time datetime="x">2 s ago</time></p>'
    await room.run_once()
    assert room.number == 1
    pages.text = '<p><time datetime="y">2 s ago</time></p>'
    await room.run_once()
    assert room.number == 2 and b'datetime="y"' in room.event
    hub.leave(room)


async def test_what_is_changed_by_an_action_is_rendered_at_once() -> None:
    pages = Pages()
    hub = Hub(pages.part)
    room = await entered(hub, "/", READ)
    pages.text, news = "<p>two</p>", room.news()
    hub.poke()
    await asyncio.wait_for(asyncio.shield(news), 1.0)  # long before the two seconds are over
    assert b"two" in room.event
    hub.leave(room)


async def test_trouble_is_told_once_and_goes_away() -> None:
    pages = Pages()
    hub = Hub(pages.part)
    room = await entered(hub, "/", READ)
    pages.text = ""
    await room.run_once()
    await room.run_once()
    assert room.number == 2 and room.event.startswith(b"event: trouble\n") and b"no page" not in room.event
    pages.text = "<p>one</p>"
    await room.run_once()
    assert room.number == 3 and room.event.startswith(b"event: live\n")
    hub.leave(room)


async def test_many_pages_together_take_no_more_than_their_share() -> None:
    hub = Hub(Pages().part)
    rooms = [await entered(hub, f"/jobs?queue=q{number}", READ) for number in range(20)]
    for room in rooms:
        room.took = 0.1
    assert hub._pause() == pytest.approx(20 * 0.1 / live.SHARE)
    for room in rooms[1:]:
        hub.leave(room)
    assert hub._pause() == live.EVERY
    hub.leave(rooms[0])


async def test_there_are_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_ROOMS", 1)
    hub = Hub(Pages().part)
    room = hub.enter("/", READ)
    assert hub.enter("/", READ) is room
    with pytest.raises(Exception, match="too many live pages"):
        hub.enter("/other", READ)
    hub.leave(room)
    hub.leave(room)


class Stream:
    """A browser's EventSource, as far as it is needed."""

    def __init__(self, service: ServiceRunner, page: str = "/", **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=10)
        self._connection.request("GET", f"/live?page={page}", headers=headers)
        self.answer = self._connection.getresponse()

    def line(self) -> str:
        return self.answer.readline().decode()

    def event(self) -> tuple[str, str]:
        """The next event: its name and its text."""
        name, lines = "", []
        while True:
            line = self.line()
            assert line, "the stream has ended"
            if line.startswith("event: "):
                name = line[7:].strip()
            elif line.startswith("data: "):
                lines.append(line[6:])
            elif line == "\n" and name:
                return name, "".join(lines)

    def rest(self) -> str:
        return self.answer.read().decode()

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 0.02)
    monkeypatch.setattr(live, "BEAT", 0.05)


def hub_of(service: ServiceRunner) -> Hub:
    inner: Any = getattr(service.service, "inner", service.service)
    hub: Hub = inner.dashboard.hub
    return hub


def until(true: Any) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_stream_tells_the_living_part_as_the_page_has_it_and_then_what_changes(dash: Dash) -> None:
    stream = Stream(dash.service)
    assert stream.answer.getheader("content-type") == "text/event-stream; charset=utf-8"
    name, text = stream.event()
    assert name == "live" and text.startswith('<section id="live" data-live') and "Nothing is queued yet" in text
    dash.done("/do/queues/emails/pause-now")
    name, text = stream.event()
    assert 'id="queue-emails"' in text and "paused" in text
    stream.close()


def test_a_client_that_leaves_is_noticed(dash: Dash, fast: None) -> None:
    hub = hub_of(dash.service)
    streams = [Stream(dash.service) for _ in range(3)]
    for stream in streams:
        stream.event()
    assert (hub.watchers, len(hub.rooms)) == (3, 1)
    streams[0].close()
    until(lambda: hub.watchers == 2)
    for stream in streams[1:]:
        stream.close()
    until(lambda: not hub.rooms)


def test_something_is_said_to_a_client_when_nothing_happens(dash: Dash, fast: None) -> None:
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
        assert stream.rest() == ""  # its end, and nothing torn off
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
        await tokens.create(store, "other", ["read"], now=0)  # where none is left, everybody may look
        return (await tokens.create(store, "reader", ["read"], now=0))[1]

    text = asyncio.run(make())
    with ServiceRunner(app, ServiceOptions(errands=False, policy=Security(rate=1e6))) as service:
        yield service, text


def test_a_stream_ends_with_its_token(
    locked: tuple[ServiceRunner, str], fast: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "FRESH_FOR", 0.0)
    service, token = locked
    stream = Stream(service, Cookie=f"accoda={token}")
    assert stream.event()[0] == "live"

    async def revoke() -> None:
        await tokens.revoke(await service.app.connections.get(), token.split("_")[1])

    asyncio.run(revoke())
    stream.rest()  # comes to an end by itself
    stream.close()
    assert service.get("/live?page=/", Cookie=f"accoda={token}").status == 401
