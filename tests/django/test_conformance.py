"""The suite that the package publishes, on the stores and databases that it is meant for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar

import pytest
from django.db import transaction
from django.test import TransactionTestCase
from proof.servers.pytest import store_of
from tests.django.conftest import database, postgres

from accoda.django import app_of
from accoda.django.compat import TaskResultDoesNotExist
from accoda.django.project import project_of
from accoda.django.testing import BackendConformance


@pytest.fixture(autouse=True, scope="class")
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A store of the class's kind, named in its entry of `TASKS`."""
    with store_of(request.cls.kind, tmp_path_factory.mktemp("store")) as url:
        request.cls.backend = {
            "BACKEND": "accoda.django.AccodaBackend",
            # One at a time, so that the order of the runs can be seen.
            "OPTIONS": {"url": url, "queues": {"default": {"concurrency": 1}}, **request.cls.options},
        }
        if not request.cls.inside:
            yield
            return
        request.cls.backend["OPTIONS"]["url"] = "django://default"
        with database(postgres(url)):
            yield


class Conformance(BackendConformance, TransactionTestCase):
    __test__ = False
    kind: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}
    inside: ClassVar[bool] = False

    def run_tasks(self) -> None:
        project_of().with_handlers().sync.run_until_idle()


class TestInMemory(Conformance):
    __test__ = True
    kind = "memory"


class TestOnSQLite(Conformance):
    __test__ = True
    kind = "sqlite"


class TestOnRedis(Conformance):
    __test__ = True
    kind = "redis"


class TestOnPostgreSQL(Conformance):
    __test__ = True
    kind = "postgres"


class TestInsidePostgreSQL(Conformance):
    """The jobs are in the database of the project itself, and part of its transactions."""

    __test__ = True
    kind = "postgres"
    inside = True

    def test_nobody_else_sees_a_task_before_the_commit(self) -> None:
        app = app_of()
        with transaction.atomic():
            id = int(self.suite.note.enqueue("soon").id)
            self.assertIsNone(app.sync.find(id))
        self.assertIsNotNone(app.sync.find(id))

    def test_a_result_of_an_open_transaction_is_found_inside_it(self) -> None:
        with transaction.atomic():
            kept = self.suite.note.enqueue("kept")
            with suppress(ZeroDivisionError), transaction.atomic():
                dropped = self.suite.note.enqueue("dropped")
                kept.refresh()
                dropped.refresh()
                raise ZeroDivisionError
            self.assertEqual(str(self.suite.note.get_result(kept.id).status), "READY")
            with self.assertRaises(TaskResultDoesNotExist):
                self.suite.note.get_result(dropped.id)
        self.run_tasks()
        kept.refresh()
        self.assertEqual(str(kept.status), "SUCCESSFUL")
