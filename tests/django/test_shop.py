"""The shop of examples/django_shop: web server and worker as processes, an HTTP client, a browser, type checkers."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect
from proof.servers.postgres import PostgresServer
from proof.servers.process import Process
from proof.servers.pytest import need

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "django_shop"
PREFIX = "/staff/jobs"
PASSWORDS = {"anna": "a-cup-of-tea", "ben": "two-cups", "carla": "three-cups"}

USERS = f"""
from django.contrib.auth.models import Permission, User
User.objects.create_superuser("anna", "anna@example.com", {PASSWORDS["anna"]!r})
User.objects.create_user("ben", "ben@example.com", {PASSWORDS["ben"]!r})
User.objects.create_user("carla", "", {PASSWORDS["carla"]!r}).user_permissions.add(
    Permission.objects.get(codename="view_jobs"))
"""


class Manage(Process):
    """`python manage.py …` of the example."""

    def __init__(self, environment: Mapping[str, str], *words: str) -> None:
        super().__init__()
        self._environment = environment
        self._words = words
        self.url = f"http://127.0.0.1:{self.port}"

    def environment(self) -> Mapping[str, str]:
        return self._environment

    def command(self) -> Sequence[str]:
        return (sys.executable, str(EXAMPLE / "manage.py"), *self._words)


class DevelopmentServer(Manage):
    """`manage.py runserver`."""

    def command(self) -> Sequence[str]:
        return (*super().command(), "runserver", str(self.port), "--noreload")

    def is_up(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class AsgiServer(DevelopmentServer):
    """`uvicorn config.asgi:application`."""

    def command(self) -> Sequence[str]:
        how = ("--port", str(self.port), "--app-dir", str(EXAMPLE), "--lifespan", "off")
        return (sys.executable, "-m", "uvicorn", "config.asgi:application", *how)


class Worker(Manage):
    """`manage.py accoda worker`."""

    def command(self) -> Sequence[str]:
        return (*super().command(), "accoda", "worker", "--metrics-port", str(self.port), "--grace", "1")

    def is_up(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/health/ready").status_code == 200
        except httpx2.TransportError:
            return False


def managed(environment: Mapping[str, str], *words: str) -> str:
    """What a command prints, which has to succeed."""
    command = [sys.executable, str(EXAMPLE / "manage.py"), *words]
    done = subprocess.run(command, env=environment, cwd=EXAMPLE, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextmanager
def running(environment: dict[str, str], server: type[Manage]) -> Iterator[tuple[str, Worker]]:
    managed(environment, "migrate")
    managed(environment, "shell", "-c", USERS)
    with server(environment) as web, Worker(environment) as worker:
        yield web.url, worker


def own(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("DJANGO_")} | more


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def processes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Worker]]:
    """The shop as its README starts it; and on PostgreSQL behind an ASGI server."""
    if request.param == "sqlite":
        environment = own(SHOP_DATA=str(tmp_path_factory.mktemp("shop")))
        with running(environment, DevelopmentServer) as found:
            yield found
        return
    with (
        need(lambda: PostgresServer(durable=False)) as server,
        running(own(SHOP_DATABASE=server.url, SHOP_DEBUG="0"), AsgiServer) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def shop(processes: tuple[str, Worker]) -> str:
    return processes[0]


class Customer:
    """A browser without a window."""

    def __init__(self, http: httpx2.Client, name: str) -> None:
        self.http = http
        http.get("/accounts/login/")
        assert self.post("/accounts/login/", username=name, password=PASSWORDS[name]).status_code == 302

    def post(self, path: str, **fields: str) -> httpx2.Response:
        token = self.http.cookies["csrftoken"]
        return self.http.post(path, data={**fields, "csrfmiddlewaretoken": token}, headers={"referer": path})

    def order(self, product: str) -> httpx2.Response:
        return self.post("/", product=product)

    def jobs(self) -> list[Any]:
        found: list[Any] = self.http.get(f"{PREFIX}/api/v1/jobs?queue=default").json()["items"]
        return found


@contextmanager
def customer(shop: str, name: str) -> Iterator[Customer]:
    with httpx2.Client(base_url=shop, timeout=30) as http:
        yield Customer(http, name)


@pytest.fixture
def ben(shop: str) -> Iterator[Customer]:
    with customer(shop, "ben") as found:
        yield found


@pytest.fixture
def anna(shop: str) -> Iterator[Customer]:
    """One of the staff."""
    with customer(shop, "anna") as found:
        yield found


def wait_for(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, f"{what} did not come within 30 s"
        time.sleep(0.02)


def test_an_order_is_packed_shown_and_announced(ben: Customer, processes: tuple[str, Worker]) -> None:
    placed = ben.order("tea")
    assert placed.status_code == 302
    where = placed.headers["location"]
    wait_for(lambda: "SUCCESSFUL" in ben.http.get(where).text, "the parcel")
    number = where.split("/")[-2]
    assert f"ben-tea-{number}" in ben.http.get(where).text
    log = processes[1].log
    wait_for(lambda: f"Subject: Your order {number}" in log.read_text(), "the email")


def test_an_order_that_fails_after_its_task_was_enqueued_leaves_neither(ben: Customer, anna: Customer) -> None:
    first = ben.order("kettle")
    where = first.headers["location"]
    wait_for(lambda: "SUCCESSFUL" in ben.http.get(where).text, "the kettle")
    before, orders = anna.jobs(), ben.http.get("/").text.count("/orders/")
    refused = ben.order("kettle")
    assert (refused.status_code, "kettle is sold out" in refused.text) == (409, True)
    assert ben.http.get("/").text.count("/orders/") == orders
    # What is enqueued after it runs, so what was rolled back would have been there by now.
    later = ben.order("cup").headers["location"]
    wait_for(lambda: "SUCCESSFUL" in ben.http.get(later).text, "the cup")
    assert len(anna.jobs()) == len(before) + 1


def test_the_order_of_another_is_not_found(ben: Customer, shop: str) -> None:
    where = ben.order("tea").headers["location"]
    with customer(shop, "carla") as carla:
        assert carla.http.get(where).status_code == 404
    assert httpx2.get(shop + where).headers["location"] == f"/accounts/login/?next={where}"


def test_customers_do_not_see_the_jobs(ben: Customer, shop: str) -> None:
    assert ben.http.get(f"{PREFIX}/").status_code == 403
    assert httpx2.get(f"{shop}{PREFIX}/").headers["location"] == f"/accounts/login/?next={PREFIX}/"
    assert httpx2.get(f"{shop}{PREFIX}/api/v1/queues").status_code == 401


# -- in a browser


@pytest.fixture
def page(browser: Browser, shop: str) -> Iterator[Page]:
    """A window in which nothing may go wrong."""
    context, troubles = browser.new_context(base_url=shop, viewport={"width": 1440, "height": 900}), list[str]()
    context.set_default_timeout(15_000)
    page = context.new_page()
    page.on("console", lambda said: troubles.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("response", lambda reply: troubles.append(reply.url) if reply.status >= 400 else None)
    yield page
    context.close()
    assert troubles == []


def log_in(page: Page, name: str) -> None:
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(PASSWORDS[name])
    page.get_by_role("button", name="Log in").click()


def test_the_dashboard_is_behind_the_shops_login_and_lives_below_its_prefix(page: Page) -> None:
    page.goto(f"{PREFIX}/queues/default")
    expect(page).to_have_url(re.compile(r"/accounts/login/\?next="))
    log_in(page, "anna")
    expect(page).to_have_url(re.compile(f"{PREFIX}/queues/default$"))
    expect(page.get_by_role("heading", name="default")).to_be_visible()
    page.wait_for_load_state()  # its script opens the dialog
    page.get_by_role("button", name="Pause …").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    shop = page.context.new_page()
    shop.goto("/")
    shop.get_by_role("button", name="Order tea").click()
    expect(shop.get_by_text("READY")).to_be_visible()
    expect(page.locator("#live tr[data-key^=job-]")).to_have_count(1, timeout=15_000)  # and nobody reloads it
    if folder := os.environ.get("ACCODA_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/django-shop.png", full_page=True)
    page.get_by_role("button", name="Resume").click()
    expect(shop.get_by_text("SUCCESSFUL")).to_be_visible(timeout=15_000)
    expect(page.locator("#live tr[data-key^=job-]")).to_have_count(0, timeout=15_000)


def test_a_reader_sees_no_buttons(page: Page) -> None:
    page.goto(f"{PREFIX}/queues/default")
    log_in(page, "carla")
    expect(page.get_by_role("heading", name="default")).to_be_visible()
    expect(page.locator("#live form[method=post]")).to_have_count(0)


# -- its own tests, and type checkers


def test_its_own_tests_pass(tmp_path: Path) -> None:
    assert "OK" in managed(own(SHOP_DATA=str(tmp_path)), "test")


def test_its_migrations_are_those_of_its_models(tmp_path: Path) -> None:
    managed(own(SHOP_DATA=str(tmp_path)), "makemigrations", "--check", "--dry-run")


def test_it_has_nothing_to_complain_of(tmp_path: Path) -> None:
    assert "no issues" in managed(own(SHOP_DATA=str(tmp_path)), "check")


def test_the_commands_of_its_readme_are_these() -> None:
    said = re.findall(r"^python manage.py (.*?)(?: &)?$", (EXAMPLE / "README.md").read_text(), re.MULTILINE)
    assert said == ["migrate", "createsuperuser", "runserver", "accoda worker", "test"]


def test_the_example_pleases_mypy_in_its_strict_mode(tmp_path: Path) -> None:
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = True\nexplicit_package_bases = True\nplugins = mypy_django_plugin.main\n"
        f"mypy_path = {EXAMPLE}:{ROOT / 'src'}\n"
        "[mypy.plugins.django-stubs]\ndjango_settings_module = config.settings\n"
    )
    environment = own(PYTHONPATH=str(EXAMPLE), SHOP_DATA=str(tmp_path))
    command = [sys.executable, "-m", "mypy", "--config-file", str(tmp_path / "mypy.ini"), str(EXAMPLE)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_pleases_pyright(tmp_path: Path) -> None:
    settings = {
        "typeCheckingMode": "standard",  # in its strict mode, every field of a model would need annotations
        "extraPaths": [str(EXAMPLE), str(ROOT / "src")],
        "include": [str(EXAMPLE)],
    }
    (tmp_path / "pyrightconfig.json").write_text(msgspec.json.encode(settings).decode())
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    found: list[Any] = msgspec.json.decode(done.stdout)["generalDiagnostics"]
    assert [(each["file"], each["range"]["start"]["line"] + 1, each["message"]) for each in found] == []
