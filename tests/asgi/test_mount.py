"""The API and the dashboard inside a web application: every address is below the prefix, and the host says who may."""

import asyncio
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount
from starlette.testclient import TestClient

from accoda import App, Lanes, Waiter
from accoda.asgi import Access, Injector, lifespan, mount
from accoda.dashboard.routes import actions, pages
from accoda.errors import InvalidInput
from accoda.http.security import Security

FORM = {"sec-fetch-site": "same-origin"}


def who(request: Request) -> Access | Response | None:
    """The host application's own login: a cookie that names the user."""
    name = request.cookies.get("user")
    if name is None:
        return RedirectResponse("/login", 303)
    if name == "stranger":
        return None
    return Access("full" if name == "anna" else "read", name)


def make_app() -> App:
    app = App("memory://")
    app.budget("api")
    demand = app.demand("deals", budget="api")

    @demand.fetch
    async def fetch(key: str) -> str:
        return key

    @demand.deliver
    async def deliver(waiter: Any, result: str) -> None: ...

    @app.handler("orders", max_attempts=1, keep_for=60, lanes=Lanes(limit=2))
    async def charge(order: dict[str, Any]) -> str:
        if order.get("declined"):
            raise ValueError("the card was declined")
        return "paid " * 20_000

    @app.every("1h", name="hourly")
    async def report() -> None: ...

    return app


async def fill(app: App) -> None:
    """Something for every page."""
    await app.enqueue("orders", {"declined": True, "text": "x" * 100_000})
    await app.enqueue("orders", {}, key="first", type=None)
    flow = app.flow("order-17")
    charged = flow.add("orders", {}, name="charge")
    flow.add("orders", {"declined": True}, name="again", after=charged)
    await flow.start()
    await app.run_until_idle()
    await app.demands["deals"].request("computers", Waiter("anna"))
    await app.enqueue("orders", {}, delay=3600, lane="acme", name="later")
    await app.enqueue("orders", {}, lane="acme")


class Links(HTMLParser):
    """Every address in a page: those to follow, and those of forms that change something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.follow: set[str] = set()
        self.post: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attributes if value is not None}
        for name in ("href", "src", "data-login"):
            if found.get(name, "#")[:1] != "#":
                self.follow.add(found[name])
        if "action" in found:
            (self.post if found.get("method") == "post" else self.follow).add(found["action"])
        self.post |= {found[name] for name in ("hx-post",) if name in found}


def plainly(mounted: Any) -> Any:
    return Starlette(routes=[Mount("/ops/jobs", mounted)])


def named_like_a_page(mounted: Any) -> Any:
    return Starlette(routes=[Mount("/jobs", mounted)])


def nested(mounted: Any) -> Any:
    return Starlette(routes=[Mount("/a", routes=[Mount("/b c", mounted)])])


def behind_a_proxy(mounted: Any) -> Any:
    """A proxy has cut `/api` off the path, and the server puts it there again, as uvicorn does."""
    web = plainly(mounted)

    async def served(scope: Any, receive: Any, send: Any) -> None:
        await web({**scope, "root_path": "/api", "path": "/api" + scope["path"]}, receive, send)

    return served


def behind_a_proxy_alone(mounted: Any) -> Any:
    """The server leaves the path as it came, and only says what is missing."""
    web = plainly(mounted)

    async def served(scope: Any, receive: Any, send: Any) -> None:
        await web({**scope, "root_path": "/api"}, receive, send)

    return served


HOSTS = [
    (plainly, "/ops/jobs", ""),
    (named_like_a_page, "/jobs", ""),
    (nested, "/a/b%20c", ""),
    (behind_a_proxy, "/api/ops/jobs", "/api"),
    (behind_a_proxy_alone, "/api/ops/jobs", "/api"),
]


@pytest.mark.parametrize(("make", "prefix", "cut"), HOSTS, ids=[host.__name__ for host, _, _ in HOSTS])
def test_every_address_of_every_page_is_below_the_prefix_and_leads_somewhere(make: Any, prefix: str, cut: str) -> None:
    app = make_app()
    asyncio.run(fill(app))
    client = TestClient(make(mount(app, auth=who)), cookies={"user": "anna"})
    todo, seen, routes = {prefix + "/"}, set[str](), set[str]()
    while todo:
        address = todo.pop().partition("#")[0]
        seen.add(address)
        assert address.startswith(prefix + "/"), address
        reply = client.get(address.removeprefix(cut), follow_redirects=False)
        assert reply.status_code == 200, (address, reply.status_code, reply.text[-500:])
        found = pages().find(address.removeprefix(prefix).partition("?")[0])
        routes |= {found.route.path} if found is not None else set()
        if not reply.headers["content-type"].startswith("text/html") or address.endswith("/docs"):
            continue
        links = Links(reply.text)
        assert f'data-root="{prefix}"' in reply.text
        for action in links.post:
            assert action.startswith(prefix + "/"), action
            assert actions().find(action.removeprefix(prefix)), action
        # One page of each kind is enough, and one of the answers to each filter.
        todo |= {link for link in links.follow if link.partition("#")[0] not in seen and len(seen) < 400}
    # A bulk change has no page before there is one.
    do = f"{prefix}/do/dead/delete".removeprefix(cut)
    made = client.post(do, data={"back": "/dead"}, headers=FORM, follow_redirects=False)
    assert client.get(made.headers["location"].removeprefix(cut)).status_code == 200
    assert {route.path for route in pages().routes} - routes == {"/bulk/{id}"}


@pytest.fixture
def web() -> Iterator[TestClient]:
    """A FastAPI application with its own lifespan around Accoda's."""
    app = make_app()
    web = FastAPI(lifespan=lifespan(app))
    web.mount("/ops/jobs", mount(app, auth=who))
    with TestClient(web) as client:
        client.portal.call(fill, app)  # type: ignore[union-attr]
        yield client


def as_user(client: TestClient, name: str) -> TestClient:
    client.cookies.set("user", name)
    return client


def test_a_caller_without_a_login_is_sent_to_that_of_the_host(web: TestClient) -> None:
    reply = web.get("/ops/jobs/jobs/1", follow_redirects=False)
    assert (reply.status_code, reply.headers["location"]) == (303, "/login")


def test_a_form_that_a_script_sends_after_the_login_ended_leads_the_page_to_the_login(web: TestClient) -> None:
    reply = web.post("/ops/jobs/do/queues/orders/pause-now", headers={"hx-request": "true", **FORM}, data={"back": "/"})
    assert (reply.status_code, reply.headers["hx-redirect"]) == (401, "/login")


def test_none_is_a_refusal_in_the_hosts_own_words(web: TestClient) -> None:
    reply = as_user(web, "stranger").get("/ops/jobs/")
    assert (reply.status_code, reply.json()) == (401, {"detail": "Unauthorized"})


def test_read_access_looks_and_changes_nothing(web: TestClient) -> None:
    as_user(web, "ben")
    page = web.get("/ops/jobs/queues/orders").text
    assert "/do/" not in page and "Log out" not in page
    refused = web.post("/ops/jobs/do/queues/orders/pause-now", data={"back": "/"}, headers=FORM)
    assert refused.status_code == 403 and "do not have the scope" in refused.text
    assert web.post("/ops/jobs/api/v1/jobs", json={"queue": "orders"}).status_code == 403
    assert web.get("/ops/jobs/api/v1/queues").status_code == 200


def test_full_access_does_and_is_led_back_below_the_prefix(web: TestClient) -> None:
    form = {"back": "/queues/orders"}
    as_user(web, "anna")
    done = web.post("/ops/jobs/do/queues/orders/pause-now", data=form, headers=FORM, follow_redirects=False)
    assert (done.status_code, done.headers["location"]) == (303, "/ops/jobs/queues/orders")
    assert "; Path=/ops/jobs;" in done.headers["set-cookie"]
    assert "paused" in web.get("/ops/jobs/queues/orders").text


def test_a_form_of_another_site_is_refused_although_the_browser_sends_the_hosts_cookie(web: TestClient) -> None:
    as_user(web, "anna")
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {}):
        reply = web.post("/ops/jobs/do/queues/orders/pause-now", data={"back": "/"}, headers=headers)
        assert reply.status_code == 403, headers
    foreign = {"origin": "https://evil.example"}
    assert web.post("/ops/jobs/api/v1/jobs", json={"queue": "orders"}, headers=foreign).status_code == 403


def test_the_api_says_where_things_are_below_the_prefix(web: TestClient) -> None:
    as_user(web, "anna")
    made = web.post("/ops/jobs/api/v1/jobs", json={"queue": "orders", "payload": {}})
    assert made.headers["location"] == f"/ops/jobs/api/v1/jobs/{made.json()['id']}"
    assert web.get(made.headers["location"]).json()["queue"] == "orders"
    assert web.get("/ops/jobs/openapi.json").json()["servers"][0]["url"] == "/ops/jobs"
    problem = web.get("/ops/jobs/api/v1/jobs/999999").json()
    assert problem["type"] == "/ops/jobs/docs#not-found"
    docs = web.get("/ops/jobs/docs").text
    for file in re.findall(r'(?:href|src)="([^"#]+)"', docs):
        assert web.get(f"/ops/jobs/{file}").status_code == 200, file


def test_the_name_of_the_host_is_the_hosts_business(web: TestClient) -> None:
    as_user(web, "anna")
    assert web.get("/ops/jobs/", headers={"host": "jobs.example.com"}).status_code == 200


def current_user(request: Request) -> str:
    name = request.headers.get("x-user")
    if name is None:
        raise HTTPException(403, "say who you are")
    return name


async def staff(user: Annotated[str, Depends(current_user)]) -> Access:
    return Access("full", user)


def test_the_login_may_be_a_dependency_with_dependencies_and_overrides() -> None:
    web = FastAPI()
    web.mount("/jobs", mount(App("memory://"), auth=staff))
    client = TestClient(web)
    assert client.get("/jobs/").json() == {"detail": "say who you are"}
    assert client.get("/jobs/", headers={"x-user": "anna"}).status_code == 200
    web.dependency_overrides[current_user] = lambda: "tester"
    assert client.get("/jobs/").status_code == 200


def test_what_the_login_cannot_have_is_refused_when_it_is_mounted() -> None:
    def needs_a_header(token: str) -> Access:
        raise NotImplementedError

    with pytest.raises(InvalidInput, match="'token' of needs_a_header is no dependency"):
        mount(App("memory://"), auth=needs_a_header)


@pytest.mark.parametrize("auth", [None, "anna", Access("full")])
def test_what_asks_nobody_is_refused_when_it_is_mounted(auth: Any) -> None:
    with pytest.raises(InvalidInput, match=r"auth: must be a function.*Security\(no_auth=True\)"):
        mount(App("memory://"), auth=auth)


def test_access_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidInput, match='may: must be "full" or "read", not \'admin\''):
        Access("admin")  # type: ignore[arg-type]


@pytest.mark.parametrize("use", [lifespan, Injector, lambda app: mount(app, auth=who)])
def test_a_web_application_is_no_app(use: Any) -> None:
    with pytest.raises(InvalidInput, match=r"app: must be the accoda.App, which has the jobs, not <fastapi"):
        use(FastAPI())


def test_with_a_security_the_service_asks_for_its_own_tokens() -> None:
    app = App("memory://")
    web = Starlette(routes=[Mount("/ops/jobs", mount(app, auth=Security(host="0.0.0.0")))])
    client = TestClient(web, base_url="http://localhost")
    reply = client.get("/ops/jobs/jobs?state=dead", follow_redirects=False)
    assert reply.headers["location"] == "/ops/jobs/login?next=%2Fjobs%3Fstate%3Ddead"
    assert client.get("/ops/jobs/api/v1/queues").status_code == 401

    async def make_token() -> str:
        from accoda.http.security import tokens

        return (await tokens.create(app.storage, "anna", ["admin"], now=0))[1]

    token = asyncio.run(make_token())
    web = Starlette(routes=[Mount("/ops/jobs", mount(app, auth=Security(host="0.0.0.0")))])
    client = TestClient(web, base_url="http://localhost")
    entered = client.post(
        "/ops/jobs/login", data={"token": token, "next": "/jobs"}, headers=FORM, follow_redirects=False
    )
    assert entered.headers["location"] == "/ops/jobs/jobs"
    assert "; Path=/ops/jobs; HttpOnly" in entered.headers["set-cookie"]
    assert client.get("/ops/jobs/jobs").status_code == 200


def test_what_is_open_answers_only_to_names_of_this_machine() -> None:
    web = Starlette(routes=[Mount("/jobs", mount(App("memory://"), auth=Security(no_auth=True)))])
    assert TestClient(web, base_url="http://localhost").get("/jobs/").status_code == 200
    assert TestClient(web, base_url="http://evil.example").get("/jobs/").status_code == 421
