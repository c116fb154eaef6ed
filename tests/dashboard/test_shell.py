"""The dashboard's frame, its overview and its queue pages, asked with plain HTTP."""

import doctest
import importlib
import re
import time

import pytest
from dash import HOSTILE, Dash, Stream
from proof.proxy import Proxy
from proof.servers.process import wait_until
from proof.servers.pytest import need
from proof.servers.redis import RedisServer
from proof.service import ServiceRunner

from accoda import App
from accoda.dashboard import dashboard, files, live, mount
from accoda.dashboard.routes import actions, pages
from accoda.http.options import ServiceOptions
from accoda.http.security import Security, guard, token_cache
from accoda.model import NewJob
from accoda.operations.health import Health
from accoda.runtime.heartbeat import Heartbeat, ProcessorState, encode

FAR_LESS_THAN_THE_STORAGES_OWN = 8.0
"""Seconds; a hung Redis is given up after 30. A loaded machine may be slow, and is not the question here."""
PURE = ("answers", "charts", "forms", "live", "render", "routes", "words")


@pytest.mark.parametrize("name", [*(f"accoda.dashboard.{each}" for each in PURE), "accoda.http.security.pages"])
def test_the_examples_in_docstrings_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_an_empty_store_says_how_to_enqueue_the_first_job(dash: Dash) -> None:
    page = dash.text("/")
    assert "Nothing is queued yet" in page and "accoda enqueue emails" in page


def test_the_overview_tells_each_queue_and_what_is_wrong_with_it(dash: Dash) -> None:
    dash.enqueue("emails", {"to": "anna"})
    dash.bury("reports", "no paper")
    page = dash.text("/")
    row = page[page.index('id="queue-emails"') :].partition("</tr>")[0]
    assert 'href="/queues/emails"' in row and "stuck" in row and "no worker serves it" in row
    assert 'href="/dead?queue=reports"' in page
    assert "No worker is running" in page and "accoda worker" in page


def test_running_jobs_and_used_slots_are_two_numbers(dash: Dash) -> None:
    for _ in range(41):
        dash.enqueue("emails")
    dash.take("emails", 41)
    tile = r'state=taken">Running</a></dt>\s*<dd><span class="num">41</span>(.*?)</dd>'
    assert re.findall(tile, dash.text("/")) == [""]  # a client of the HTTP API runs them: there are no slots
    beat = Heartbeat(
        "w1", "mailer", "host-7", 4711, 0, 0, ("emails",), 1, (ProcessorState("emails", 9, 1, 0),), slots=12
    )
    dash.store(lambda store: store.write("worker/w1", encode(beat), ttl=60))
    assert re.findall(tile, dash.text("/")) == ['<span class="note">9 of 12 slots used</span>']


@pytest.mark.parametrize("word", ["healthy", "idle", "paused", "waiting for budget", "behind", "failing", "stuck"])
def test_every_word_for_health_has_a_colour(word: str) -> None:
    assert word in (Health.__doc__ or "")
    assert re.search(rf"\.state\.{word.replace(' ', '-')}[ ,]", files.files()["accoda.css"].body.decode())


def test_the_workers_tile_warns_only_where_jobs_wait_for_one(dash: Dash) -> None:
    dash.enqueue("emails", delay=60)
    tile = r'<div class="tile (\w*)">\s*<dt><a href="/workers">'
    assert re.findall(tile, dash.text("/")) == [""]
    dash.enqueue("emails")
    assert re.findall(tile, dash.text("/")) == ["warn"]


def test_many_queues_are_found_by_name(dash: Dash) -> None:
    for number in range(14):
        dash.enqueue(f"line-{number}")
    assert 'name="q"' in dash.text("/")
    found = dash.text("/?q=LINE-1")
    assert re.findall(r'id="queue-([^"]+)"', found) == ["line-1", "line-10", "line-11", "line-12", "line-13"]
    assert "No queue has" in dash.text("/?q=nothing")


def test_a_queue_page_shows_its_line_and_its_failures(dash: Dash) -> None:
    first = dash.enqueue("emails", name="the first")
    dead = dash.bury("letters", HOSTILE)[0]
    page = dash.text("/queues/emails")
    assert f'href="/jobs/{first}"' in page and "the first" in page and "Waiting by level" in page
    assert "No history yet" in page and "No running worker handles this queue" in page
    letters = dash.text("/queues/letters")
    assert f'href="/jobs/{dead}"' in letters and "&lt;script&gt;" in letters


def test_queues_of_accoda_itself_ask_for_no_handler(dash: Dash) -> None:
    dash.app.budget("bank", capacity=20, refill=20, per=60)

    @dash.app.handler("payments", budget="bank", cost=1)
    async def pay() -> None: ...

    dash.enqueue("payments")
    dash.run(lambda app: app.run_until_idle(["payments"]))
    dash.store(lambda store: store.enqueue([NewJob("accoda.bulk", delay=60)]))
    spent, bulk = dash.text("/queues/payments.spent"), dash.text("/queues/accoda.bulk")
    assert "A record kept by Accoda" in spent and "never run" in spent
    assert "Every worker and HTTP service runs its jobs" in bulk
    for page in (spent, bulk):
        assert "@app.handler" not in page and "worker handles it" not in page
    assert "@app.handler" in dash.text("/queues/payments")


def test_a_queue_is_paused_with_a_note_and_resumed(dash: Dash) -> None:
    dash.enqueue("emails")
    to, said = dash.done("/do/queues/emails/pause", back="/queues/emails", note=HOSTILE, **{"for": "1h"})
    assert to == "/queues/emails" and said.startswith("emails is paused for 1 h")
    page = dash.text("/queues/emails")
    assert "Paused by local" in page and "&lt;script&gt;" in page and "Resume" in page
    assert dash.done("/do/queues/emails/resume")[0] == "/"
    assert "Paused by" not in dash.text("/queues/emails")
    dash.done("/do/queues/emails/pause-now")
    assert "paused" in dash.text("/")


def test_a_purge_needs_the_name_of_the_queue(dash: Dash) -> None:
    dash.enqueue("emails")
    refused = dash.do("/do/queues/emails/purge", state="ready", sure="reports")
    assert refused.status == 422 and b"type the name of the queue, emails" in refused.body
    assert dash.do("/do/queues/emails/purge", state="taken", sure="emails").status == 422
    said = dash.done("/do/queues/emails/purge", state="ready", sure="emails")[1]
    assert said == "1 ready job of emails is deleted."
    assert dash.do("/do/queues/emails/purge", state="ready").status == 422


def test_an_action_that_htmx_asks_for_is_answered_with_a_line(dash: Dash) -> None:
    dash.enqueue("emails")
    service, url = dash.service, dash.service.url
    headers = {"Origin": url, "Content_Type": "application/x-www-form-urlencoded", "HX_Request": "true"}
    here = service.post("/do/queues/emails/pause-now", b"back=/", **headers, HX_Current_URL=f"{url}/")
    assert here.status == 200 and here.body.startswith(b'<p class="said">emails is paused')
    away = service.post("/do/queues/emails/resume", b"back=/", **headers, HX_Current_URL=f"{url}/queues/emails")
    assert away.headers["hx-redirect"] == "/" and "accoda-said=" in away.headers["set-cookie"]
    wrong = service.post("/do/queues/emails/purge", b"state=none", **headers)
    assert wrong.status == 422 and wrong.body.startswith(b'<p class="said wrong">')


def test_what_was_said_is_shown_once(dash: Dash) -> None:
    reply = dash.service.get("/", Cookie="accoda-said=%3Cb%3Edone")
    assert b"&lt;b&gt;done" in reply.body and "Max-Age=0" in reply.headers["set-cookie"]


@pytest.mark.parametrize(
    ("path", "status"),
    [("/queues/nowhere", 404), ("/queues/a/b", 404), ("/queues/emails?span=2y", 422), ("/do/nothing", 405)],
)
def test_what_is_wrong_is_a_page_in_the_same_design(dash: Dash, path: str, status: int) -> None:
    dash.enqueue("emails")
    reply = dash.get(path)
    assert reply.status == status and reply.headers["content-type"] == "text/html; charset=utf-8"
    assert b'<nav aria-label="Pages">' in reply.body and f'<p class="status">{status}</p>'.encode() in reply.body


def test_a_store_that_is_away_is_a_page_too() -> None:
    server = need(lambda: RedisServer().start())
    try:
        with Proxy(server.port) as proxy:
            options = ServiceOptions(system_jobs=False, patience=0.2)
            with ServiceRunner(App(server.url_at(proxy.port)), options) as service:
                assert service.get("/").status == 200
                with proxy.during(cut=True):
                    reply = service.get("/")
                    assert reply.status == 503 and b"Try again" in reply.body and reply.headers["retry-after"] == "5"
                assert service.get("/").status == 200
    finally:
        server.close()


def test_a_store_that_hangs_is_told_in_time_and_not_called_a_matter_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "ANSWER_WITHIN", 0.3)
    monkeypatch.setattr(live, "EVERY", 0.02)
    server = need(lambda: RedisServer().start())
    try:
        with Proxy(server.port) as proxy, ServiceRunner(App(server.url_at(proxy.port))) as service:
            stream = Stream(service)
            assert stream.event()[0] == "live"
            with proxy.during(hold=True):  # connected, and silent
                reply = service.get("/")
                assert reply.status == 503 and b"The store does not answer" in reply.body
                assert b"token" not in reply.body and b"Try again" in reply.body
                while (event := stream.event())[0] == "same":
                    pass
                assert event[0] == "stale" and "the store does not answer" in event[1]
            stream.close()
    finally:
        server.close()


def test_a_page_that_is_refused_because_tokens_cannot_be_read_tells_of_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("FRESH_FOR", "KNOWN_FOR"):
        monkeypatch.setattr(token_cache, name, 0.0 if name == "FRESH_FOR" else 1e-9)
    server = need(lambda: RedisServer().start())
    try:
        options = ServiceOptions(system_jobs=False, patience=0.2, policy=Security())
        with Proxy(server.port) as proxy, ServiceRunner(App(server.url_at(proxy.port)), options) as service:
            with proxy.during(cut=True):
                reply = service.get("/")
            assert reply.status == 503 and b"The store does not answer, so nothing was done." in reply.body
            assert b"token" not in reply.body
    finally:
        server.close()


def test_a_guarded_page_does_not_wait_for_a_store_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "LOOK_UP_FOR", 0.2)
    monkeypatch.setattr(token_cache, "FRESH_FOR", 0.0)
    monkeypatch.setattr(token_cache, "KNOWN_FOR", 0.5)
    server = need(lambda: RedisServer().start())
    try:
        options = ServiceOptions(system_jobs=False, policy=Security())
        with Proxy(server.port) as proxy, ServiceRunner(App(server.url_at(proxy.port)), options) as service:
            wait_until(lambda: service.get("/").status == 200, lambda: "no page")
            time.sleep(0.5)  # the tokens that the guard has are too old now
            with proxy.during(hold=True):  # connected, and silent
                for _ in range(2):  # the second finds the read of the first, which still waits
                    begun = time.monotonic()
                    reply = service.get("/")
                    assert reply.status == 503 and b"The store does not answer, so nothing was done." in reply.body
                    assert time.monotonic() - begun < FAR_LESS_THAN_THE_STORAGES_OWN
            wait_until(lambda: service.get("/").status == 200, lambda: "it does not go on by itself")
    finally:
        server.close()


def test_a_page_is_not_for_posting(dash: Dash) -> None:
    assert dash.do("/").status == 405 and dash.do("/do/nothing").status == 404


def test_pages_cannot_be_framed_and_run_nothing_but_our_own_files(dash: Dash) -> None:
    dash.enqueue("emails")
    for path in ("/", "/queues/emails", "/login", "/nothing-here/", "/jobs/x/y"):
        reply = dash.get(path)
        if reply.headers["content-type"].startswith("text/html"):
            policy = reply.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
            assert reply.headers["x-frame-options"] == "DENY" and reply.headers["cache-control"] == "no-store"
            text = reply.body.decode()
            assert not re.search(r"\sstyle=|\son[a-z]+=|<style|javascript:", text), path
            scripts = re.findall(r"<script[^>]*>", text)
            assert all('src="/static/' in each or "application/json" in each for each in scripts)
            assert "http://" not in text.replace("http://www.w3.org", "") and "https://" not in text


def test_files_are_kept_for_ever_under_the_name_that_changes_with_them(dash: Dash) -> None:
    addresses = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', dash.text("/")))
    assert len(addresses) == 7
    for address in addresses:
        reply = dash.get(address)
        assert reply.status == 200 and "immutable" in reply.headers["cache-control"]
        again = dash.service.get(address, If_None_Match=reply.headers["etag"])
        assert again.status == 304 and not again.body
    assert dash.get("/static/accoda.css").headers["cache-control"] == "no-cache"
    assert dash.get("/static/accoda.000000000000.css").status == 404
    assert dash.get("/static/../dashboard.py").status in (400, 404)


def test_every_page_and_action_has_its_place() -> None:
    assert all(route.path.startswith("/do/") for route in actions().routes)
    paths = [route.path for route in pages().routes] + [route.path for route in actions().routes]
    assert len(paths) == len(set(paths))


def test_a_service_may_be_without_it() -> None:
    with ServiceRunner(App("memory://"), ServiceOptions(system_jobs=False, dashboard=False)) as service:
        assert service.get("/").status == 404


def test_where_jinja_is_missing_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount, "is_installed", lambda: False)
    with ServiceRunner(App("memory://")) as service:
        reply = service.get("/")
        assert reply.status == 501 and mount.ADVICE.encode() in reply.body
        assert service.get("/api/v1/queues").status == 200


def test_a_head_has_no_body(dash: Dash) -> None:
    reply = dash.service.request("HEAD", "/")
    assert reply.status == 200 and not reply.body and int(reply.headers["content-length"]) > 1000


def test_an_address_that_leads_nowhere_is_a_page_for_browsers_and_json_for_programs(dash: Dash) -> None:
    page = dash.service.request("GET", "/nowhere", headers={"Accept": "text/html,*/*"})
    assert (page.status, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert b"here is no such page" in page.body
    for path, accept in (("/nowhere", "application/json"), ("/api/v1/nowhere", "text/html")):
        told = dash.service.request("GET", path, headers={"Accept": accept})
        assert (told.status, told.headers["content-type"]) == (404, "application/problem+json")
