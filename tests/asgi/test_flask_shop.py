"""The shop of examples/flask_shop: its views by Flask's own client, and its jobs by a real worker."""

import importlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from worker import WorkerProcess

from accoda import App


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"SHOP_DATABASE": str(tmp_path / "shop.db"), "SHOP_JOBS": f"sqlite:///{tmp_path}/jobs.db"}


@pytest.fixture
def module(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The shop, with the files of this test."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    import examples.flask_shop.shop as found

    module = importlib.reload(found)
    yield module
    module.app.sync.close()


def order(module: ModuleType, **invoice: Any) -> str:
    reply = module.shop.test_client().post("/invoices", json=invoice)
    assert reply.status_code == 202
    return str(reply.headers["Location"])


def rows(module: ModuleType) -> list[tuple[str, int]]:
    connection = sqlite3.connect(module.DATABASE)
    try:
        return connection.execute("SELECT customer, total FROM invoices").fetchall()
    finally:
        connection.close()


def test_an_invoice_is_written_by_a_worker_in_the_context_of_the_application(
    module: ModuleType, environment: dict[str, str]
) -> None:
    where = order(module, customer="ben", total=17)
    client = module.shop.test_client()
    assert client.get(where).get_json() == {"state": "ready", "result": None}
    with WorkerProcess("examples.flask_shop.shop:app", {**os.environ, **environment}):
        assert module.app.sync.result(int(where.rpartition("/")[2]), timeout=30) == "examples.flask_shop.shop 1"
    assert client.get(where).get_json() == {"state": "done", "result": "examples.flask_shop.shop 1"}
    assert rows(module) == [("ben", 17)]
    assert client.get("/invoices/999").status_code == 404


def test_each_run_has_a_context_of_its_own_which_ends_with_it(module: ModuleType) -> None:
    ended: list[object] = []
    module.shop.teardown_appcontext(lambda error: ended.append(error))
    app: App = module.app
    with app.testing() as trial:
        for total in (1, 2):
            module.write_invoice.sync.enqueue(module.Invoice("ben", total))
        app.sync.run_until_idle()
        trial.assert_no_failures()
    assert ended == [None, None] and len(rows(module)) == 2


def test_a_view_and_its_job_are_tested_without_a_worker(module: ModuleType) -> None:
    app: App = module.app
    with app.testing() as trial:
        where = order(module, customer="anna", total=3)
        trial.assert_enqueued("invoices", module.Invoice("anna", 3))
        app.sync.run_until_idle()
        assert module.shop.test_client().get(where).get_json()["state"] == "done"


def test_a_request_that_fails_enqueues_nothing(module: ModuleType) -> None:
    app: App = module.app
    with app.testing() as trial:
        assert module.shop.test_client().post("/invoices", json={"customer": "ben"}).status_code == 500
        assert trial.waiting("invoices") == []
