"""`manage.py check`: what is wrong with the settings, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings
from tests.django.helpers import project, tasks_setting

from accoda.django.checks import check_deployment, check_outbox
from accoda.django.compat import task_backends


def found(alias: str = "default") -> list[str | None]:
    return [one.id for one in task_backends[alias].check()]


def without_the_app() -> override_settings:
    return override_settings(INSTALLED_APPS=[name for name in settings.INSTALLED_APPS if name != "accoda.django"])


def test_good_settings_have_nothing_to_complain_of(tmp_path: Path) -> None:
    with project(f"sqlite:///{tmp_path}/jobs.db"):
        assert found() == []
        assert list(check_outbox(databases=["default"])) == list(check_deployment()) == []


def test_a_project_without_the_app_has_no_worker() -> None:
    with without_the_app(), project(outbox=False):
        assert found() == ["accoda.W001"]


def test_a_project_without_the_app_has_no_outbox_table(tmp_path: Path) -> None:
    with without_the_app(), project(f"sqlite:///{tmp_path}/jobs.db", outbox=True):
        assert found() == ["accoda.E004"]


def test_a_queue_that_no_store_could_have_is_named() -> None:
    setting = tasks_setting("memory://")
    setting["default"]["QUEUES"] = ["no queue\n"]
    with override_settings(TASKS=setting):
        assert found() == ["accoda.E003"]


def test_a_text_is_no_list_of_queues() -> None:
    setting = tasks_setting("memory://")
    setting["default"]["QUEUES"] = "default"  # Django takes it for the queues d, e, f …
    with override_settings(TASKS=setting):
        (one,) = task_backends["default"].check()
        assert (one.id, one.msg) == ("accoda.E003", "TASKS['default']['QUEUES']: must be a list, such as ['default'].")


@pytest.mark.parametrize(("queues", "ids"), [(["default"], ["accoda.W002"]), (["mail"], [])])
def test_two_backends_that_would_run_each_others_tasks_are_named(
    tmp_path: Path, queues: list[str], ids: list[str]
) -> None:
    one = tasks_setting(f"sqlite:///{tmp_path}/jobs.db")["default"]
    with override_settings(TASKS={"default": one, "other": {**one, "QUEUES": queues}}):
        assert found("other") == ids
        assert found() == []  # each pair is named once


def test_a_missing_outbox_table_is_named(tmp_path: Path) -> None:
    with project(f"sqlite:///{tmp_path}/jobs.db"):
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE accoda_outbox RENAME TO away")
        try:
            assert [one.id for one in check_outbox(databases=["default"])] == ["accoda.W003"]
            assert list(check_outbox(databases=["another"])) == list(check_outbox()) == []
        finally:
            with connection.cursor() as cursor:
                cursor.execute("ALTER TABLE away RENAME TO accoda_outbox")


@pytest.mark.parametrize(("options", "id"), [({"url": "memory://"}, "accoda.E010"), ({}, "accoda.W011")])
def test_a_deployment_keeps_its_jobs_where_workers_find_them(
    options: dict[str, Any], id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACCODA_URL", raising=False)
    with override_settings(TASKS={"default": {"BACKEND": "accoda.django.AccodaBackend", "OPTIONS": options}}):
        assert [one.id for one in check_deployment()] == [id]


@pytest.mark.parametrize("alias", ["unknown", "dummy"])
def test_a_command_for_a_backend_that_is_not_accodas_names_those_that_are(alias: str) -> None:
    module = type(task_backends["default"]).__mro__[1].__module__.rpartition(".")[0]
    setting = {**tasks_setting("memory://"), "dummy": {"BACKEND": f"{module}.dummy.DummyBackend"}}
    with override_settings(TASKS=setting), pytest.raises(CommandError, match=f"'{alias}'; it has default"):
        call_command("accoda", "--backend", alias, "queues")


@pytest.mark.parametrize("words", [("--backend", "other"), ("--backend=other",)])
def test_an_option_of_the_command_itself_goes_before_those_of_accoda(words: tuple[str, ...]) -> None:
    with (
        project(),
        pytest.raises(CommandError, match=r"before the command: manage\.py accoda --backend default worker"),
    ):
        call_command("accoda", "worker", *words)
