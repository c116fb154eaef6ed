"""Worker processes of `manage.py accoda worker`: kills, databases that go away, signals, code that changes."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need
from tests.django.conftest import database, postgres
from tests.django.helpers import environment, manage, managed, project
from tests.django.project.shop import tasks
from tests.django.project.shop.models import Order

from accoda.django.compat import TaskResult, TaskResultStatus, default_task_backend

pytestmark = pytest.mark.usefixtures("clean_orders")


@contextmanager
def worker(settings: dict[str, str], *words: str) -> Iterator[subprocess.Popen[str]]:
    process = manage(settings, "accoda", "worker", *words)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(true: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"{what} did not come within {seconds:g} s"
        time.sleep(0.01)


def finished(result: TaskResult) -> TaskResult:  # type: ignore[type-arg]
    def is_finished() -> bool:
        result.refresh()
        return result.is_finished

    wait_for(is_finished, f"the end of {result.task.name}")
    return result


def test_a_worker_runs_what_a_view_enqueued_and_leaves_when_it_is_told(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with project(url), worker(environment(url)) as process:
        plain, later = tasks.count.enqueue(1), tasks.count_async.enqueue(2)
        assert (finished(plain).return_value, finished(later).return_value) == (1, 1)
        assert plain.worker_ids[0].split("-")[-2] == str(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    assert Order.objects.count() == 2


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_that_is_told_to_leave_finishes_what_it_runs(tmp_path: Path, how: signal.Signals) -> None:
    url, file = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "ran.txt"
    with project(url), worker(environment(url)) as process:
        result = tasks.append_slowly.enqueue(str(file), 1.0)
        wait_for(file.exists, "the run")
        process.send_signal(how)
        assert process.wait(timeout=20) == 0
        assert default_task_backend.get_result(result.id).return_value == "slowly"


def test_a_worker_that_is_told_twice_gives_back_what_it_runs(tmp_path: Path) -> None:
    url, file = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "ran.txt"
    with project(url), worker(environment(url)) as process:
        result = tasks.append_slowly.enqueue(str(file), 30.0)
        wait_for(file.exists, "the run")
        assert default_task_backend.get_result(result.id).status == TaskResultStatus.RUNNING
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 1
        found = default_task_backend.get_result(result.id)
        assert (found.status, found.attempts, found.errors) == (TaskResultStatus.READY, 0, [])


def test_twenty_kills_lose_no_task_and_leave_none_running(tmp_path: Path) -> None:
    """2,000 tasks, while the workers are killed at random moments. A run may be cut off and come again."""
    url, file = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "ran.txt"
    file.touch()
    choose = random.Random(20)
    with project(url, outbox=False, queues={"default": {"lease": 1.0}}):
        results = [tasks.append.enqueue(str(file), number) for number in range(2000)]
        settings = environment(url, outbox=False, queues={"default": {"lease": 1.0}})
        running = [manage(settings, "accoda", "worker") for _ in range(3)]
        try:
            for _ in range(20):
                seen = file.stat().st_size
                wait_for(lambda seen=seen: file.stat().st_size > seen, "the next run")  # type: ignore[misc]
                time.sleep(choose.uniform(0, 0.05))
                victim = running.pop(0)
                victim.kill()
                victim.communicate()
                running.append(manage(settings, "accoda", "worker"))
            wait_for(lambda: len(set(file.read_text().split())) == 2000, "the last run", 120)
            statuses = {str(finished(result).status) for result in results}
        finally:
            for process in running:
                process.kill()
                process.communicate()
    assert statuses == {"SUCCESSFUL"}


@pytest.mark.parametrize("task", [tasks.backend_pid, tasks.backend_pid_async], ids=["sync", "async"])
def test_a_task_works_after_the_database_has_ended_its_connections(task: object, tmp_path: Path) -> None:
    with server() as postgres_server:
        url = f"sqlite:///{tmp_path}/jobs.db"
        config = {**postgres(postgres_server.url), "CONN_MAX_AGE": None}  # a worker's thread keeps its connection
        with database(config), project(url, outbox=False), worker(environment(url, outbox=False), "--concurrency", "1"):
            first = finished(task.enqueue())  # type: ignore[attr-defined]
            assert first.status == TaskResultStatus.SUCCESSFUL, first.errors
            end_backends()
            second = finished(task.enqueue())  # type: ignore[attr-defined]
            assert second.status == TaskResultStatus.SUCCESSFUL, second.errors
            assert first.return_value != second.return_value
            connection.close()
            postgres_server.kill()
            postgres_server.start()
            third = finished(task.enqueue())  # type: ignore[attr-defined]
            assert third.status == TaskResultStatus.SUCCESSFUL, third.errors


def test_jobs_inside_the_projects_own_database_outlive_a_restart_of_it(tmp_path: Path) -> None:
    url = "django://default"
    with server() as running, database(postgres(running.url)), project(url), worker(environment(url)):
        assert finished(tasks.count.enqueue(1)).return_value == 1
        connection.close()
        running.kill()
        running.start()
        assert finished(tasks.count.enqueue(2)).return_value == 1


THEIR_TASKS = """
from accoda.django import app_of, task

app = app_of()  # before the test runner has made its own database

@task
def note() -> None: ...
"""
THEIR_TESTS = """
from django.test import TestCase, TransactionTestCase
from accoda.django.project import project_of
from their.tasks import note

class TestInATransaction(TestCase):
    def test_its_result_is_found(self):
        self.assertEqual(note.get_result(note.enqueue().id).status, "READY")

class TestWithCommits(TransactionTestCase):
    def test_it_runs(self):
        result = note.enqueue()
        project_of().with_handlers().sync.run_until_idle()
        result.refresh()
        self.assertEqual(result.status, "SUCCESSFUL")
"""


@pytest.mark.parametrize("more", [(), ("--parallel", "2")])
def test_the_tests_of_a_project_leave_its_own_jobs_alone(more: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "their").mkdir()
    for name, code in {"__init__": "", "tasks": THEIR_TASKS, "tests": THEIR_TESTS}.items():
        (tmp_path / "their" / f"{name}.py").write_text(code)
    (tmp_path / "their_settings.py").write_text(
        "from tests.django.project.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'their']\n"
    )
    url = "django://default"
    with server() as running, database(postgres(running.url)), project(url) as found:
        settings = environment(url)
        settings |= {"DJANGO_SETTINGS_MODULE": "their_settings", "PYTHONPATH": f"{tmp_path}:{settings['PYTHONPATH']}"}
        assert "Ran 2 tests" in managed(settings, "test", "their", "--noinput", *more)
        assert found.app.sync.find(1) is None


@contextmanager
def server() -> Iterator[PostgresServer]:
    found = need(lambda: PostgresServer(durable=False).start())
    try:
        yield found
    finally:
        found.stop()


def end_backends() -> None:
    """What a failover, an idle timeout or a pooler does to connections."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )


def test_the_commands_of_accoda_know_the_project(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    settings = environment(url, outbox=False)
    with project(url, outbox=False):
        id = tasks.keyed.enqueue(7).id
    assert "default" in managed(settings, "accoda", "queues")
    assert "tests.django.project.shop.tasks.keyed" in managed(settings, "accoda", "job", id)
    managed(settings, "accoda", "worker", "--burst")
    with project(url, outbox=False):
        assert default_task_backend.get_result(id).return_value == 7
    assert "Usage" in managed(settings, "accoda", "worker", "--help")
    assert "TASKS has no backend of Accoda named 'x'" in managed(settings, "accoda", "--backend", "x", "queues", code=1)


def test_several_processes_of_one_worker_import_the_project(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with project(url, outbox=False):
        results = [tasks.count.enqueue(number) for number in range(20)]
        managed(environment(url, outbox=False), "accoda", "worker", "--processes", "2", "--burst")
        assert {finished(result).return_value for result in results} == {1}


def test_a_worker_in_debug_restarts_when_code_changes(tmp_path: Path) -> None:
    folder, url = tmp_path / "site", f"sqlite:///{tmp_path}/jobs.db"
    (folder / "live").mkdir(parents=True)
    (folder / "live" / "__init__.py").touch()
    code = "from accoda.django import task\n\n@task\ndef version():\n    return {}\n"
    (folder / "live" / "tasks.py").write_text(code.format(1))
    (folder / "live_settings.py").write_text(
        "from tests.django.project.settings import *\nDEBUG = True\nINSTALLED_APPS = [*INSTALLED_APPS, 'live']\n"
    )
    settings = environment(url, outbox=False)
    settings |= {"DJANGO_SETTINGS_MODULE": "live_settings", "PYTHONPATH": f"{folder}:{settings['PYTHONPATH']}"}
    ask = "import django; django.setup(); from live.tasks import version; print(version.enqueue().id)"
    process = manage(settings, "accoda", "worker", folder=folder)
    try:
        assert answer(settings, folder, ask) == 1
        (folder / "live" / "tasks.py").write_text(code.format(2))
        wait_for(lambda: answer(settings, folder, ask) == 2, "the worker with the new code")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)


def answer(settings: dict[str, str], folder: Path, ask: str) -> int:
    """What the worker's present code returns."""
    import sys

    from accoda import App

    id = int(subprocess.check_output([sys.executable, "-c", ask], env=settings, cwd=folder, text=True))
    app = App(f"sqlite:///{folder.parent}/jobs.db")
    try:
        return int(app.sync.result(id, timeout=30))
    finally:
        app.sync.close()
