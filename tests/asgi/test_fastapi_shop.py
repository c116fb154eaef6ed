"""The shop of examples/fastapi_shop: uvicorn, a worker and PostgreSQL as processes, and clients of all kinds."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need
from web import WebProcess, events
from worker import WorkerProcess

ROOT = Path(__file__).parents[2]
PREFIX = "/ops/jobs"


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with need(lambda: PostgresServer(durable=False, settings=["synchronous_commit=off"])) as server:
        yield server.url


@pytest.fixture(scope="module")
def environment(database: str) -> dict[str, str]:
    return {**os.environ, "SHOP_DATABASE": database, "SHOP_PACE": "0.2"}


@pytest.fixture(scope="module")
def shop(environment: dict[str, str]) -> Iterator[str]:
    """The address of the shop."""
    with (
        WebProcess("examples.fastapi_shop.web:web", environment) as web,
        WorkerProcess("examples.fastapi_shop.jobs:app", environment),
    ):
        yield web.url


def customer(shop: str, name: str = "ben", password: str = "two-cups") -> httpx2.Client:
    """A client that is logged in."""
    client = httpx2.Client(base_url=shop, timeout=30)
    assert client.post("/login", data={"user": name, "password": password}).status_code == 303
    return client


@pytest.fixture
def ben(shop: str) -> Iterator[httpx2.Client]:
    client = customer(shop)
    yield client
    client.close()


@pytest.fixture
def anna(shop: str) -> Iterator[httpx2.Client]:
    """One of the staff."""
    client = customer(shop, "anna", "a-cup-of-tea")
    yield client
    client.close()


def test_an_order_is_accepted_followed_and_packed(ben: httpx2.Client) -> None:
    placed = ben.post("/orders", json={"items": ["tea", "cup"]})
    where = placed.headers["location"]
    assert placed.status_code == 202 and placed.json()["links"] == {"self": where, "events": where + "/events"}
    with ben.stream("GET", where + "/events") as reply:
        seen = [(name, told) for _, name, told in events(reply)]
    # The stream looks now and then, so only the last that the handler says is sure to be told.
    assert [told for name, told in seen if name == "progress"][-1] == {"fraction": 1.0, "message": "packed cup"}
    parcel = {"order": placed.json()["id"], "items": 2, "label": f"ben-{placed.json()['id']}"}
    assert seen[-1][0] == "end" and seen[-1][1]["result"] == parcel
    told = ben.get(where).json()
    assert (told["state"], told["id"], seen[-1][1]["id"]) == ("done", placed.json()["id"], placed.json()["id"])


def test_an_order_that_fails_after_its_job_was_enqueued_leaves_neither(
    ben: httpx2.Client, anna: httpx2.Client, database: str
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        # The row is accepted when it is inserted, and refused when it is told its job.
        refusal = "ALTER TABLE orders ADD CONSTRAINT no_gin CHECK (job IS NULL OR NOT 'gin' = ANY (items))"
        connection.execute(refusal)
        newest = ben.post("/orders", json={"items": ["tea"]}).json()["id"]
        with ben.stream("GET", f"/orders/{newest}/events") as reply:
            list(events(reply))
        jobs = anna.get(f"{PREFIX}/api/v1/jobs?queue=packing").json()["items"]
        assert ben.post("/orders", json={"items": ["gin"]}).status_code == 500
        assert anna.get(f"{PREFIX}/api/v1/jobs?queue=packing").json()["items"] == jobs
        (last,) = connection.execute("SELECT max(id) FROM orders").fetchone() or ()
        assert last == newest


def test_the_order_of_another_is_not_found(ben: httpx2.Client, anna: httpx2.Client, shop: str) -> None:
    where = ben.post("/orders", json={"items": ["tea"]}).headers["location"]
    assert anna.get(where).status_code == anna.get(where + "/events").status_code == 404
    assert httpx2.get(shop + where).status_code == 401


def test_a_producer_needs_nothing_of_the_worker(ben: httpx2.Client, environment: dict[str, str]) -> None:
    order = ben.post("/orders", json={"items": ["tea"]}).json()["id"]
    command = [sys.executable, "-c", _WITHOUT_THE_WORKER, str(order)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{{'order': {order}, 'items': 1, 'label': 'ben-{order}'}}\n", done.stderr


_WITHOUT_THE_WORKER = """
import asyncio, sys
from examples.fastapi_shop import producer
asyncio.run(producer.main(int(sys.argv[1])))
assert not {"examples.fastapi_shop.jobs", "sqlalchemy", "fastapi"} & set(sys.modules)
"""


def test_customers_do_not_see_the_jobs(ben: httpx2.Client) -> None:
    assert ben.get(f"{PREFIX}/").headers["location"] == f"/login?next={PREFIX}/"
    assert ben.get(f"{PREFIX}/api/v1/jobs/1").status_code == 303


# -- in a browser


@pytest.fixture
def troubles() -> list[str]:
    return []


@pytest.fixture
def page(browser: Browser, shop: str, troubles: list[str]) -> Iterator[Page]:
    """A window; what goes wrong in it is in `troubles`."""
    context = browser.new_context(base_url=shop, viewport={"width": 1440, "height": 900})
    context.set_default_timeout(15_000)
    context.route("**/favicon.ico", lambda route: route.fulfill(status=204))  # the shop's own pages have no icon
    page = context.new_page()
    page.on("console", lambda said: troubles.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("response", lambda reply: troubles.append(reply.url) if reply.status >= 400 else None)
    yield page
    context.close()
    assert troubles == []


def log_in(page: Page, name: str, password: str) -> None:
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_the_dashboard_is_behind_the_shops_login_and_lives_below_its_prefix(page: Page, ben: httpx2.Client) -> None:
    page.goto(f"{PREFIX}/queues/packing")
    expect(page).to_have_url(re.compile(r"/login\?next="))
    log_in(page, "anna", "a-cup-of-tea")
    expect(page.get_by_role("heading", name="packing")).to_be_visible()
    expect(page).to_have_url(re.compile(f"{PREFIX}/queues/packing$"))
    # Live updates, and a form that a script sends.
    page.get_by_role("button", name="Pause …").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    placed = ben.post("/orders", json={"items": ["a kettle"]}).json()
    expect(page.locator("#live tr[data-key^=job-]")).to_have_count(1)
    page.locator("#live tr[data-key^=job-] a").first.click()
    expect(page).to_have_url(re.compile(rf"{PREFIX}/jobs/\d+$"))
    page.go_back()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#live tr[data-key^=job-]")).to_have_count(0)
    with ben.stream("GET", placed["links"]["events"]) as reply:
        assert [name for _, name, _ in events(reply)][-1] == "end"
    # Every entry of the navigation, by a click and by its key.
    for name in page.locator("header nav a").all_inner_texts():
        link = page.locator("header nav").get_by_role("link", name=name, exact=True)
        where = str(link.get_attribute("href"))
        assert where.startswith(f"{PREFIX}/")
        link.click()
        expect(page).to_have_url(re.compile(re.escape(where) + "$"))  # else the page before may be live, too
        expect(page.locator("#pulse[data-state=live]")).to_be_visible()  # the script has run, and its stream is open
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page).to_have_url(re.compile(f"{PREFIX}/jobs$"))


def test_the_page_of_the_api_works_below_the_prefix(page: Page) -> None:
    page.goto(f"/login?next={PREFIX}/docs")
    log_in(page, "carla", "three-cups")
    expect(page.locator("article").first).to_be_visible()
    expect(page.locator("article pre").first).to_contain_text(f"{PREFIX}/api/v1/")


def test_who_may_only_look_finds_nothing_to_press(page: Page) -> None:
    page.goto(f"/login?next={PREFIX}/queues/packing")
    log_in(page, "carla", "three-cups")
    expect(page.get_by_role("heading", name="packing")).to_be_visible()
    expect(page.locator("form[method=post]")).to_have_count(0)


# -- in a test of the shop's own


TESTS = '''
import os
from fastapi.testclient import TestClient

from accoda.asgi import get_app
from examples.fastapi_shop.database import get_session
from examples.fastapi_shop.jobs import app, pack
from examples.fastapi_shop.login import current_user
from examples.fastapi_shop.messages import PackOrder
from examples.fastapi_shop.web import web


class Order:
    id, customer, items, state, job = 17, "ben", ["tea"], "ordered", None


class FakeSession:
    """What the handler and the views need of a session."""

    async def get(self, table, id):
        return Order if id == 17 else None

    async def commit(self):
        Order.state += " and committed"


def test_views_and_handlers_have_the_same_overrides():
    web.dependency_overrides[get_session] = FakeSession
    web.dependency_overrides[current_user] = lambda: "ben"
    web.dependency_overrides[get_app] = lambda: app
    with app.testing():
        Order.job = pack.sync.enqueue(PackOrder(order=17)).id
        client = TestClient(web)
        assert client.get("/orders/17").json()["state"] == "ready"
        assert client.get("/orders/18").status_code == 404
        app.sync.run_until_idle()
        assert client.get("/orders/17").json()["result"]["label"] == "ben-17"
    assert Order.state == "packed and committed"
    app.sync.close()


def test_the_login_is_below_the_path_that_a_proxy_adds():
    reply = TestClient(web, root_path="/internal").get("/internal/ops/jobs/", follow_redirects=False)
    assert reply.headers["location"] == "/internal/login?next=/internal/ops/jobs/"


def teardown_module():
    web.dependency_overrides.clear()
'''


def test_overrides_reach_views_and_handlers_without_any_server(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(TESTS)
    environment = {**os.environ, "SHOP_DATABASE": "postgresql://nobody@127.0.0.1:1/none", "SHOP_PACE": "0"}
    command = [sys.executable, "-m", "pytest", "-q", "-c", "pyproject.toml", str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


# -- as a type checker sees it


EXAMPLES = [str(ROOT / "examples" / name) for name in ("fastapi_shop", "flask_shop")]


def test_the_examples_please_mypy_in_its_strict_mode() -> None:
    # With the cache of `make check`: to look at the frameworks is most of the work.
    mypy = [sys.executable, "-m", "mypy", "--strict", "--explicit-package-bases", *EXAMPLES]
    done = subprocess.run(mypy, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout


def test_the_examples_please_pyright_in_its_strict_mode(tmp_path: Path) -> None:
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src"), str(ROOT)], "include": EXAMPLES}
    (tmp_path / "pyrightconfig.json").write_text(msgspec.json.encode(settings).decode())
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    found: list[Any] = msgspec.json.decode(done.stdout)["generalDiagnostics"]
    assert [(each["file"], each["range"]["start"]["line"] + 1, each["message"]) for each in found] == []
