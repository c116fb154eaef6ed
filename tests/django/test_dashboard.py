"""The dashboard and the API inside the project: its login, its permissions, its prefix, under WSGI and ASGI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.asgi import get_asgi_application
from django.test import Client
from tests.django.helpers import project, run
from tests.django.project.shop import tasks

from accoda.django.project import Project
from accoda.http.security import guard

PREFIX = "/staff/jobs"
FORM = "application/x-www-form-urlencoded"
SAME = {"HTTP_SEC_FETCH_SITE": "same-origin"}


@pytest.fixture(scope="module")
def shop() -> Iterator[Project]:
    with project(outbox=False) as found:
        tasks.always_fails.enqueue()
        run(found)
        tasks.keyed.using(priority=50).enqueue(7, customer="anna")
        yield found


@pytest.fixture(scope="module", autouse=True)
def users(django_project: None) -> Iterator[None]:
    names = {"anna": ("view_jobs", "change_jobs"), "ben": ("view_jobs",), "carla": ()}
    for name, permissions in names.items():
        user = User.objects.create_user(name, password="secret")
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    User.objects.create_superuser("root", password="secret")
    yield
    User.objects.all().delete()


def browser(name: str | None = None) -> Client:
    client = Client(HTTP_HOST="shop.example")
    if name is not None:
        client.force_login(User.objects.get(username=name))
    return client


class Links(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src", "action", "hx-post") and value and value[:1] == "/":
                self.found.add(value)


def test_who_is_not_logged_in_comes_to_the_projects_own_login(shop: Project) -> None:
    answer = browser().get(f"{PREFIX}/jobs?state=dead")
    assert (answer.status_code, answer["location"]) == (
        302,
        f"/accounts/login/?next={PREFIX}/jobs%3Fstate%3Ddead",
    )
    assert browser().get(f"{PREFIX}/api/v1/queues").status_code == 401
    part = browser().post(f"{PREFIX}/do/pause", headers={"hx-request": "true"})
    assert (part.status_code, part["hx-redirect"][:17]) == (401, "/accounts/login/?")


def test_who_has_no_permission_is_refused(shop: Project) -> None:
    assert browser("carla").get(f"{PREFIX}/").status_code == 403
    assert browser("carla").get(f"{PREFIX}/api/v1/queues").status_code == 403
    User.objects.filter(username="root").update(is_active=False)
    assert browser("ben").get(f"{PREFIX}/").status_code == 200
    User.objects.filter(username="root").update(is_active=True)


def test_every_page_and_every_link_is_below_the_prefix(shop: Project) -> None:
    client, todo, seen = browser("root"), {f"{PREFIX}/"}, set()
    while todo:
        address = todo.pop()
        seen.add(address.partition("#")[0])
        answer = client.get(address)
        assert answer.status_code in (200, 302, 303, 405), (address, answer.status_code)
        if answer.get("content-type", "").startswith("text/html"):
            links = {link.partition("#")[0] for link in Links(answer.content.decode()).found}
            outside = {link for link in links if not link.startswith(f"{PREFIX}/") and link != PREFIX}
            assert not outside, (address, outside)
            todo |= {link for link in links if "/do/" not in link} - seen
        assert len(seen) < 300
    assert len(seen) > 20


def test_the_pages_name_the_tasks_of_the_project(shop: Project) -> None:
    page = browser("ben").get(f"{PREFIX}/jobs?queue=default").content.decode()
    assert "tests.django.project.shop.tasks.keyed" in page


def test_to_act_needs_the_permission_to_change(shop: Project) -> None:
    (dead,) = shop.app.sync.run(shop.app.storage.browse("default", "dead"))
    for name, status in (("ben", 403), ("anna", 303)):
        answer = browser(name).post(f"{PREFIX}/do/dead/{dead.id}/replay", "", FORM, **SAME)  # type: ignore[arg-type]
        assert answer.status_code == status, (name, answer.content)
    found = shop.app.sync.find(dead.id)
    assert found is not None and found.state == "ready"
    run(shop)


def test_a_form_of_another_site_changes_nothing(shop: Project) -> None:
    (dead,) = shop.app.sync.run(shop.app.storage.browse("default", "dead"))
    for headers in ({"HTTP_ORIGIN": "https://evil.example"}, {"HTTP_SEC_FETCH_SITE": "cross-site"}):
        answer = browser("anna").post(f"{PREFIX}/do/dead/{dead.id}/replay", "", FORM, **headers)
        assert answer.status_code == 403
    assert shop.app.sync.find(dead.id).state == "dead"  # type: ignore[union-attr]


def test_the_api_answers_in_the_same_place(shop: Project) -> None:
    answer = browser("ben").get(f"{PREFIX}/api/v1/queues", headers={"accept": "application/json"})
    assert [queue["name"] for queue in answer.json()["items"]] == ["default"]
    made = browser("anna").post(
        f"{PREFIX}/api/v1/jobs",
        json.dumps({"queue": "default", "payload": {"args": [9]}, "type": tasks.keyed.module_path}),
        content_type="application/json",
        **SAME,  # type: ignore[arg-type]
    )
    assert made.status_code == 201, made.content
    assert made["location"].startswith(f"{PREFIX}/api/v1/jobs/")


def test_a_development_server_says_of_no_body_that_its_length_is_empty(shop: Project) -> None:
    answer = browser("ben").get(f"{PREFIX}/", CONTENT_LENGTH="", CONTENT_TYPE="text/plain")  # type: ignore[arg-type]
    assert answer.status_code == 200


def test_headers_about_the_connection_are_left_to_the_web_server(shop: Project) -> None:
    answer = browser("ben").post(f"{PREFIX}/api/v1/jobs", "x" * 100_000, content_type="text/plain", **SAME)  # type: ignore[arg-type]
    assert answer.status_code == 415
    assert "connection" not in answer.headers


def test_under_wsgi_a_stream_ends_after_an_event_and_says_so(shop: Project) -> None:
    answer = browser("ben").get(f"{PREFIX}/live", {"page": "/"})
    assert answer["content-type"] == "text/event-stream; charset=utf-8"
    events = answer.content.decode()
    assert events.startswith("retry: 3000\n\nevent: live\n")
    assert events.endswith("event: poll\ndata:\n\n")


def test_under_wsgi_a_long_event_arrives_whole(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    client = browser("ben")
    whole = client.get(f"{PREFIX}/live", {"page": "/"}).content
    monkeypatch.setattr(guard, "OUTPUT", 100)  # the service sends an answer in pieces
    in_pieces = client.get(f"{PREFIX}/live", {"page": "/"}).content
    assert [text.count(b"\n") for text in (whole, in_pieces)] == [whole.count(b"\n")] * 2
    assert in_pieces.endswith(b"\n\nevent: poll\ndata:\n\n") and in_pieces.count(b"event:") == 2


@pytest.fixture
def bens_cookie(shop: Project) -> str:
    client = browser("ben")
    return "; ".join(f"{name}={value.value}" for name, value in client.cookies.items())


async def test_under_asgi_a_stream_goes_on_until_its_viewer_leaves(bens_cookie: str) -> None:
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": f"{PREFIX}/live",
        "query_string": b"page=/",
        "headers": [(b"host", b"shop.example"), (b"cookie", bens_cookie.encode())],
        "client": ("127.0.0.1", 1),
        "server": ("shop.example", 80),
    }
    sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    gone = asyncio.Event()
    bodies = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in bodies:
            return message
        await gone.wait()
        return {"type": "http.disconnect"}

    serving = asyncio.create_task(get_asgi_application()(scope, receive, sent.put))
    start = await sent.get()
    assert (start["type"], start["status"]) == ("http.response.start", 200)
    text = b""
    while text.count(b"event:") < 2:  # the page, and that nothing has changed two seconds later
        text += (await asyncio.wait_for(sent.get(), 20)).get("body", b"")
    assert b"event: live" in text and b"event: poll" not in text
    gone.set()
    await asyncio.wait_for(serving, 20)
