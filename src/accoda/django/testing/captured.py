"""Tasks in tests: listed, asserted and run inside the transaction of a `TestCase`, without a worker or a store.

class OrderTests(TasksMixin, TestCase):
    def test_an_order_sends_a_receipt(self):
        place_order(17)
        self.tasks.assert_enqueued(send_receipt, 17)
        self.tasks.run()
        self.assertEqual(len(mail.outbox), 1)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from types import TracebackType
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections
from msgspec.structs import replace

from accoda.app_testing import Trial
from accoda.django.backend import on_commit
from accoda.django.compat import Task, TaskResult, task_enqueued
from accoda.django.jobs import call_of
from accoda.django.project import Project, project_of


class CapturedTasks:
    """The tasks that were enqueued since the capture began; those of a savepoint that was rolled back are gone."""

    def __init__(self, project: Project, trial: Trial) -> None:
        self._project = project
        self._trial = trial
        self._seen: list[TaskResult[..., Any]] = []

    @property
    def enqueued(self) -> list[TaskResult[..., Any]]:
        """All of them, in order, as they are now: those that wait for the commit, and those that have run."""
        waiting = [one.result for one in on_commit(self._project) if not one.done]
        for result in self._seen:
            result.refresh()
        return [*self._seen, *waiting]

    def of(self, task: Task[..., Any]) -> list[TaskResult[..., Any]]:
        """Those of one task."""
        return [result for result in self.enqueued if result.task.func is task.func]

    def assert_enqueued(self, task: Task[..., Any], *args: Any, **kwargs: Any) -> TaskResult[..., Any]:
        """That this call is among them; its result. Without arguments: any call of the task."""
        found, call = self.of(task), call_of(args, kwargs)
        for result in found:
            if not (args or kwargs) or (result.args, result.kwargs) == (call.args, call.kwargs):
                return result
        there = ", ".join(f"{each.task.name}(*{each.args}, **{each.kwargs})" for each in self.enqueued) or "nothing"
        raise AssertionError(f"{task.module_path}(*{args}, **{kwargs}) was not enqueued; there is {there}")

    def assert_none(self, task: Task[..., Any] | None = None) -> None:
        """That no task was enqueued, or none of this one."""
        found = self.enqueued if task is None else self.of(task)
        if found:
            raise AssertionError(f"no task should be enqueued; there is {', '.join(each.task.name for each in found)}")

    def run(self) -> int:
        """Run what is ready, and what that enqueues, on this thread's database connection; the number of runs.

        What waits for the commit is run as if it had come, since a `TestCase` never commits.
        """
        app, runs = self._project.with_handlers(), 0
        while True:
            for one in on_commit(self._project):
                one()
            count = app.sync.run_until_idle()
            runs += count
            if not count:
                return runs

    def advance(self, seconds: float = 0.0, **more: float) -> None:
        """Move the clock, for tasks with `run_after` and for retries: `advance(hours=1)`."""
        self._trial.advance(seconds, **more)

    def assert_no_failures(self) -> None:
        """That no run failed; else the first error is raised."""
        self._trial.assert_no_failures()

    def _note(self, sender: object, task_result: TaskResult[..., Any], **_: Any) -> None:
        if task_result.backend == self._project.alias:
            self._seen.append(task_result)


@contextmanager
def capture_tasks(backend: str = "default") -> Iterator[CapturedTasks]:
    """Keep the tasks of a backend in memory while this lasts. For pytest, or where a mixin does not fit."""
    project = project_of(backend)
    app, place, around = project.app, project.place, project.app.around
    with app.testing() as trial:
        tasks = CapturedTasks(project, trial)
        project.place = replace(place, way="on_commit")
        app.around = (lent_connections(),)
        task_enqueued.connect(tasks._note)
        try:
            yield tasks
        finally:
            task_enqueued.disconnect(tasks._note)
            project.place, app.around = place, around


class TasksMixin:
    """For a `TestCase`: `self.tasks` has what each test enqueues."""

    tasks: CapturedTasks
    tasks_backend = "default"

    def setUp(self) -> None:
        super().setUp()  # type: ignore[misc]
        self.tasks = self.enterContext(capture_tasks(self.tasks_backend))  # type: ignore[attr-defined]


def lent_connections() -> Callable[[object], Any]:
    """Around every run: the database connections of the thread that asks for it here, as a live server test has them.

    Only one run in another thread has them at a time: two would share a transaction and its savepoints. `def` tasks
    that a test without `await` runs are in the test's own thread, which has them anyway.
    """
    lent = {alias: connections[alias] for alias in connections}
    lender, lock = threading.get_ident(), threading.Lock()
    return lambda job: _Lent(lent, lender, lock)


class _Lent:
    def __init__(self, lent: dict[str, Any], lender: int, lock: threading.Lock) -> None:
        self._lent = lent
        self._lender = lender
        self._lock = lock
        self._own: dict[str, Any] = {}
        self._stack = AsyncExitStack()

    def __enter__(self) -> None:
        if threading.get_ident() == self._lender:
            return
        self._lock.acquire()
        for alias, connection in self._lent.items():
            connection.inc_thread_sharing()
            connections[alias] = connection

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if threading.get_ident() == self._lender:
            return
        for alias, connection in self._lent.items():
            del connections[alias]
            connection.dec_thread_sharing()
        self._lock.release()

    async def __aenter__(self) -> None:
        await self._stack.enter_async_context(ThreadSensitiveContext())
        await sync_to_async(self.__enter__)()
        self._stack.push_async_callback(sync_to_async(self.__exit__), None, None, None)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
