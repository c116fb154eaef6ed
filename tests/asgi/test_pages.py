"""docs/fastapi.md and docs/flask.md: every block of code is a piece of an example, or runs as it is printed."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from accoda import asgi
from accoda.asgi import get_app

ROOT = Path(__file__).parents[2]


def blocks(page: str, kind: str = "python") -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


def run(page: str, scope: dict[str, Any]) -> dict[str, Any]:
    """Run the blocks one after the other; those that name a file must be a piece of it, as they are."""
    for code in blocks(page):
        first, _, rest = code.partition("\n")
        if not first.startswith("# examples/"):
            exec(compile(code, page, "exec"), scope)
            continue
        text = (ROOT / first.removeprefix("# ")).read_text()
        indented = [textwrap.indent(rest, " " * depth, lambda line: line.strip() != "") for depth in (0, 4)]
        assert any(piece in text for piece in indented), rest
    return scope


@pytest.fixture(scope="module")
def fastapi_page() -> dict[str, Any]:
    return run("fastapi.md", {"__name__": "example"})


def test_the_examples_of_fastapi_run(fastapi_page: dict[str, Any]) -> None:
    fastapi_page["test_a_report_is_made_and_an_email_is_sent"]()
    fastapi_page["app"].sync.close()


@pytest.mark.parametrize("name", ["web", "plain"])
def test_the_answers_are_those_of_the_page(fastapi_page: dict[str, Any], name: str) -> None:
    app, web = fastapi_page["app"], fastapi_page[name]
    with app.testing(), TestClient(web) as client:
        placed = client.post("/reports", json={"year": 2030})
        assert placed.json().keys() == {"id", "what", "links"}
        app.sync.run_until_idle()
        printed = (ROOT / "docs" / "fastapi.md").read_text()
        with client.stream("GET", placed.headers["location"] + "/events") as reply:
            lines = [line.replace(f'"id":{placed.json()["id"]}', '"id":17') for line in reply.iter_lines()]
        assert [line for line in lines if line.startswith("data: ")][-1] in printed and lines[-2] in printed
        assert client.get("/ops/jobs/", headers={"x-user": "carla"}).status_code == 200
        assert client.get("/ops/jobs/", follow_redirects=False).headers["location"] == "/login"
    app.sync.close()


async def test_a_producer_without_the_handlers_enqueues_what_they_take(fastapi_page: dict[str, Any]) -> None:
    reports, app = fastapi_page["reports"], fastapi_page["app"]
    with app.testing():
        reports.connections, before = app.connections, reports.connections
        try:
            id = await fastapi_page["order"](2031)
            await app.run_until_idle()
            assert await app.result(id) == "report-2031.pdf"
        finally:
            reports.connections = before


def test_views_without_a_lifespan_get_the_app_by_an_override(fastapi_page: dict[str, Any]) -> None:
    app, web = fastapi_page["app"], fastapi_page["web"]
    web.dependency_overrides[get_app] = lambda: app
    with app.testing():
        assert TestClient(web).get("/reports/999").status_code == 404
    app.sync.close()


def test_the_page_names_all_that_there_is() -> None:
    page = (ROOT / "docs" / "fastapi.md").read_text()
    for name in asgi.__all__:
        assert f"`{name}" in page or f" {name}" in page, name


def test_the_examples_of_flask_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DATABASE", str(tmp_path / "shop.db"))
    monkeypatch.setenv("SHOP_JOBS", f"sqlite:///{tmp_path}/jobs.db")
    path = ROOT / "examples" / "flask_shop" / "shop.py"
    scope: dict[str, Any] = {"__name__": "flask_page"}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    run("flask.md", scope)["test_an_invoice_is_written"]()
    scope["app"].sync.close()
