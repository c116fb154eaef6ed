"""What every backend of Django's tasks should do, as tests: for the authors of backends.

class MyBackendTests(BackendConformance, TransactionTestCase):
    backend = {"BACKEND": "mine.MyBackend", "OPTIONS": {...}}

    def run_tasks(self):
        call_command("my_worker", "--until-idle")

A test is skipped where the backend says, by its `supports_…`, that it does not have the feature.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from asgiref.sync import async_to_sync
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from accoda.django.compat import (
    InvalidTask,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    plain_task,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)

if TYPE_CHECKING:
    from django.test import TransactionTestCase

    Base = TransactionTestCase
else:
    Base = object

READY, RUNNING = TaskResultStatus.READY, TaskResultStatus.RUNNING
FAILED, SUCCESSFUL = TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL


class Suite(Base):
    """What the tests share, and the three things that a backend's author says."""

    backend: ClassVar[dict[str, Any]]
    """The entry of `TASKS` under test."""
    runs_in_this_process: ClassVar[bool] = True
    """Whether `run_tasks` runs the tasks in the process of the test: otherwise what looks into it is skipped."""
    delay: ClassVar[float] = 0.3
    """Seconds for which the tests of `run_after` delay a task."""

    def run_tasks(self) -> None:
        """Run what is ready, and what that enqueues, until nothing is left to start."""
        raise NotImplementedError

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(override_settings(TASKS={"default": self.backend}))
        from accoda.django.testing import suite_tasks

        self.suite = suite_tasks
        suite_tasks.ran.clear()
        self.tasks = task_backends["default"]

    def need(self, *features: str) -> None:
        """Skip the test unless the backend has these features."""
        for feature in features:
            if not getattr(self.tasks, f"supports_{feature}"):
                self.skipTest(f"the backend does not support {feature}")

    def finished(self, result: TaskResult[..., Any]) -> TaskResult[..., Any]:
        """The result after the tasks have run; as the call left it, where results cannot be read."""
        self.run_tasks()
        if self.tasks.supports_get_result:
            result.refresh()
        return result

    def ran(self) -> list[Any]:
        if not self.runs_in_this_process:
            self.skipTest("the tasks run in another process")
        return self.suite.ran


class Enqueueing(Suite):
    """What `enqueue` gives back and refuses."""

    def test_a_task_that_was_enqueued_is_ready(self) -> None:
        before = timezone.now()
        result = self.suite.add.enqueue(2, second=3)
        self.assertEqual(result.status, READY)
        self.assertFalse(result.is_finished)
        self.assertEqual((result.args, result.kwargs), ([2], {"second": 3}))
        self.assertEqual((result.backend, result.attempts, result.errors), ("default", 0, []))
        self.assertIs(result.task.func, self.suite.add.func)
        self.assertIsNone(result.started_at)
        self.assertIsNone(result.last_attempted_at)
        self.assertIsNone(result.finished_at)
        assert result.enqueued_at is not None
        self.assertLess(abs(result.enqueued_at - before), timedelta(minutes=1))
        with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
            result.return_value  # noqa: B018 - the property raises

    def test_it_is_the_backend_of_its_alias(self) -> None:
        self.assertEqual(self.tasks.alias, "default")
        self.assertEqual(self.tasks.options, self.backend.get("OPTIONS", {}))
        self.assertEqual(type(self.suite.add.get_backend()), type(self.tasks))

    def test_the_id_of_a_result_is_a_short_text_of_its_own(self) -> None:
        ids = [self.suite.nothing.enqueue().id for _ in range(20)]
        self.assertEqual(len(set(ids)), 20)
        for id in ids:
            self.assertIsInstance(id, str)
            self.assertTrue(0 < len(id) < 64, id)

    def test_aenqueue_does_the_same(self) -> None:
        async def enqueue() -> TaskResult[..., Any]:
            made: TaskResult[..., Any] = await self.suite.add.aenqueue(2, 3)
            return made

        result = async_to_sync(enqueue)()
        self.assertEqual((result.status, result.args), (READY, [2, 3]))
        self.assertEqual(self.finished(result).return_value, 5)

    def test_arguments_are_as_json_has_them(self) -> None:
        result = self.suite.echo.enqueue((1, 2), b"text", nested={"list": [(3,)], "none": None, "float": 1.5})
        self.assertEqual(result.args, [[1, 2], "text"])
        self.assertEqual(result.kwargs, {"nested": {"list": [[3]], "none": None, "float": 1.5}})
        self.assertEqual(self.finished(result).return_value, {"args": result.args, "kwargs": result.kwargs})

    def test_text_of_every_script_arrives(self) -> None:
        text = 'ünï 漢字 \U0001f980 "quotes" \\ \n\t %s {braces} ; DROP TABLE'
        self.assertEqual(self.finished(self.suite.echo.enqueue(text)).return_value["args"], [text])

    def test_large_arguments_arrive(self) -> None:
        text = "x" * 100_000
        self.assertEqual(len(self.finished(self.suite.echo.enqueue(text)).return_value["args"][0]), 100_000)

    def test_arguments_that_json_cannot_say_are_refused(self) -> None:
        for wrong in (object(), {1, 2}, datetime.now(UTC), uuid4()):
            with self.assertRaises(TypeError):
                self.suite.echo.enqueue(wrong)
            with self.assertRaises(TypeError):
                self.suite.echo.enqueue(wrong=wrong)

    def test_bytes_that_are_no_text_are_refused(self) -> None:
        with self.assertRaises((TypeError, ValueError)):
            self.suite.echo.enqueue(b"\xff\xfe")

    def test_what_was_refused_is_not_run(self) -> None:
        with self.assertRaises(TypeError):
            self.suite.note.enqueue(object())
        self.run_tasks()
        self.assertEqual(self.ran(), [])

    def test_a_function_that_no_worker_could_find_is_refused(self) -> None:
        def local() -> None: ...

        with self.assertRaises(InvalidTask):
            plain_task(local)
        with self.assertRaises(InvalidTask):
            plain_task(lambda: None).enqueue()

    def test_what_is_no_function_is_refused(self) -> None:
        with self.assertRaises(InvalidTask):
            plain_task(int)

    def test_a_queue_that_the_backend_does_not_have_is_refused(self) -> None:
        if not self.tasks.queues:
            self.skipTest("the backend has every queue")
        with self.assertRaises(InvalidTask):
            self.suite.add.using(queue_name="no-such-queue")

    def test_a_task_that_is_not_valid_any_more_is_refused_when_it_is_enqueued(self) -> None:
        with override_settings(TASKS={"default": {**self.backend, "QUEUES": ["another"]}}):
            with self.assertRaises(InvalidTask):
                self.suite.add.enqueue(1, 2)

            async def enqueue() -> None:
                await self.suite.add.aenqueue(1, 2)

            with self.assertRaises(InvalidTask):
                async_to_sync(enqueue)()

    def test_context_needs_a_parameter_of_that_name(self) -> None:
        with self.assertRaises(InvalidTask):
            plain_task(takes_context=True)(self.suite.no_task)

    def test_a_decorated_function_is_still_one(self) -> None:
        self.assertEqual(self.suite.add.call(2, 3), 5)
        self.assertEqual(self.suite.add.func(2, 3), 5)
        self.assertEqual(self.suite.add.name, "add")

    def test_using_changes_a_copy(self) -> None:
        self.need("priority")
        copy = self.suite.add.using(priority=7)
        self.assertEqual((copy.priority, self.suite.add.priority), (7, 0))
        self.assertEqual(copy.module_path, self.suite.add.module_path)

    def test_it_has_nothing_to_complain_of_in_its_own_settings(self) -> None:
        self.assertEqual([one for one in self.tasks.check() if one.is_serious()], [])


class Running(Suite):
    """What becomes of a task when it is run."""

    def test_a_task_that_returns_is_successful(self) -> None:
        self.need("get_result")
        result = self.finished(self.suite.add.enqueue(2, 3))
        self.assertEqual((result.status, result.return_value, result.attempts), (SUCCESSFUL, 5, 1))
        self.assertTrue(result.is_finished)
        self.assertEqual(result.errors, [])
        assert result.enqueued_at and result.started_at and result.finished_at and result.last_attempted_at
        self.assertLessEqual(result.started_at, result.finished_at)
        self.assertEqual(result.started_at, result.last_attempted_at)
        (worker,) = result.worker_ids
        self.assertTrue(worker)

    def test_none_is_a_return_value(self) -> None:
        self.need("get_result")
        result = self.finished(self.suite.nothing.enqueue())
        self.assertEqual((result.status, result.return_value), (SUCCESSFUL, None))

    def test_a_return_value_is_as_json_has_it(self) -> None:
        self.need("get_result")
        result = self.finished(self.suite.return_bytes_and_tuple.enqueue())
        self.assertEqual(result.return_value, {"bytes": "as text", "tuple": [1, 2]})

    def test_a_return_value_that_json_cannot_say_is_a_failure(self) -> None:
        self.need("get_result")
        result = self.finished(self.suite.return_object.enqueue())
        self.assertEqual((result.status, len(result.errors)), (FAILED, 1))
        self.assertIs(result.errors[0].exception_class, TypeError)

    def test_a_task_that_raises_has_failed(self) -> None:
        self.need("get_result")
        result = self.finished(self.suite.fail.enqueue("because of this"))
        self.assertEqual((result.status, result.attempts, len(result.errors)), (FAILED, 1, 1))
        self.assertTrue(result.is_finished)
        assert result.started_at and result.finished_at
        self.assertLessEqual(result.started_at, result.finished_at)
        (error,) = result.errors
        self.assertIs(error.exception_class, ValueError)
        self.assertEqual(error.exception_class_path, "builtins.ValueError")
        self.assertIn("because of this", error.traceback)
        self.assertIn("raise ValueError(text)", error.traceback)
        with self.assertRaisesMessage(ValueError, "Task failed"):
            result.return_value  # noqa: B018 - the property raises

    def test_the_cause_of_an_error_is_in_its_traceback(self) -> None:
        self.need("get_result")
        (error,) = self.finished(self.suite.fail_with_cause.enqueue()).errors
        self.assertIs(error.exception_class, RuntimeError)
        self.assertIn("the cause", error.traceback)
        self.assertIn("the effect", error.traceback)

    def test_an_error_that_cannot_be_shown_is_a_failure_too(self) -> None:
        self.need("get_result")
        result = self.finished(self.suite.fail_unshowably.enqueue())
        self.assertEqual((result.status, len(result.errors)), (FAILED, 1))
        self.assertIs(result.errors[0].exception_class, self.suite.Unshowable)

    def test_a_task_that_ends_the_process_fails_and_others_run(self) -> None:
        self.need("get_result")
        results = [self.suite.exit_process.enqueue(), self.suite.add.enqueue(1, 1)]
        self.run_tasks()
        for result in results:
            result.refresh()
        self.assertEqual([result.status for result in results], [FAILED, SUCCESSFUL])
        self.assertIs(results[0].errors[0].exception_class, SystemExit)

    def test_a_keyboard_interrupt_of_a_task_is_its_own(self) -> None:
        self.need("get_result")
        result = self.finished(self.suite.interrupt.enqueue())
        self.assertEqual(result.status, FAILED)
        self.assertIs(result.errors[0].exception_class, KeyboardInterrupt)

    def test_arguments_that_do_not_fit_are_a_failure(self) -> None:
        self.need("get_result")
        result = self.finished(self.suite.add.enqueue(1, 2, 3, wrong=4))
        self.assertEqual(result.status, FAILED)
        self.assertIs(result.errors[0].exception_class, TypeError)

    def test_a_failure_does_not_stop_what_comes_after_it(self) -> None:
        for task in (self.suite.fail, self.suite.fail_with_cause, self.suite.fail_unshowably):
            task.enqueue()
        self.suite.note.enqueue("after")
        self.run_tasks()
        self.assertEqual(self.ran(), ["after"])

    def test_every_task_runs_once(self) -> None:
        for number in range(100):
            self.suite.note.enqueue(number)
        self.run_tasks()
        self.run_tasks()
        self.assertEqual(sorted(self.ran()), list(range(100)))

    def test_to_run_nothing_is_fine(self) -> None:
        self.run_tasks()
        self.assertEqual(self.ran(), [])

    def test_an_async_task_runs(self) -> None:
        self.need("async_task", "get_result")
        result = self.finished(self.suite.add_async.enqueue(2, 3))
        self.assertEqual((result.status, result.return_value), (SUCCESSFUL, 5))

    def test_an_async_task_that_raises_has_failed(self) -> None:
        self.need("async_task", "get_result")
        result = self.finished(self.suite.fail_async.enqueue())
        self.assertEqual(result.status, FAILED)
        self.assertIs(result.errors[0].exception_class, ValueError)

    def test_async_tasks_are_refused_where_they_are_not_supported(self) -> None:
        if self.tasks.supports_async_task:
            self.skipTest("the backend supports async tasks")
        with self.assertRaises(InvalidTask):
            self.suite.add_async.enqueue(1, 2)

    def test_a_task_that_takes_it_gets_its_context(self) -> None:
        self.need("get_result")
        result = self.finished(self.suite.look_around.enqueue("value"))
        self.assertEqual(
            result.return_value,
            {
                "attempt": 1,
                "attempts": 1,
                "id": result.id,
                "status": "RUNNING",
                "args": ["value"],
                "value": "value",
                "started": True,
                "finished": False,
            },
        )

    def test_an_async_task_gets_its_context_too(self) -> None:
        self.need("get_result", "async_task")
        result = self.finished(self.suite.look_around_async.enqueue(value=7))
        self.assertEqual(result.return_value, [1, result.id, 7])

    def test_a_task_may_enqueue_another(self) -> None:
        self.need("get_result")
        result = self.finished(self.suite.enqueue_another.enqueue("inner"))
        inner = self.suite.note.get_result(result.return_value)
        self.assertEqual((inner.status, inner.args), (SUCCESSFUL, ["inner"]))

    def test_an_async_task_may_enqueue_another(self) -> None:
        self.need("get_result", "async_task")
        result = self.finished(self.suite.enqueue_another_async.enqueue("inner"))
        self.assertEqual(self.suite.note.get_result(result.return_value).status, SUCCESSFUL)

    def test_signals_tell_of_every_step(self) -> None:
        told: list[tuple[str, object, str, str]] = []
        results: list[TaskResult[..., Any]] = []

        def listen(name: str) -> Callable[..., None]:
            def note(sender: object, task_result: TaskResult[..., Any], **_: Any) -> None:
                told.append((name, sender, task_result.id, str(task_result.status)))
                results.append(task_result)

            return note

        signals = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}
        receivers = {name: listen(name) for name in signals}
        for name, signal in signals.items():
            signal.connect(receivers[name])
        try:
            good, bad = self.suite.add.enqueue(2, 3), self.suite.fail.enqueue()
            self.run_tasks()
        finally:
            for name, signal in signals.items():
                signal.disconnect(receivers[name])
        if not self.runs_in_this_process:
            told = [one for one in told if one[0] == "enqueued"]
        expected = {"enqueued": ("READY", "READY"), "started": ("RUNNING",) * 2, "finished": ("SUCCESSFUL", "FAILED")}
        for index, result in enumerate((good, bad)):
            mine = [(name, status) for name, sender, id, status in told if id == result.id]
            steps = [(name, statuses[index]) for name, statuses in expected.items()]
            self.assertEqual(mine, steps if self.runs_in_this_process else steps[:1])
        self.assertEqual({sender for _, sender, *_ in told}, {type(self.tasks)})
        if self.runs_in_this_process:
            self.assertEqual({one.return_value for one in results if one.status == SUCCESSFUL}, {5})


class Results(Suite):
    """What `get_result` finds."""

    def setUp(self) -> None:
        super().setUp()
        self.need("get_result")

    def test_a_result_is_found_by_its_id(self) -> None:
        made = self.suite.add.enqueue(2, second=3)
        found = self.tasks.get_result(made.id)
        self.assertEqual((found.id, found.status, found.backend), (made.id, READY, "default"))
        self.assertEqual((found.args, found.kwargs), ([2], {"second": 3}))
        self.assertIs(found.task.func, self.suite.add.func)
        self.assertEqual(found.attempts, 0)
        assert found.enqueued_at is not None
        self.assertLess(abs(found.enqueued_at - timezone.now()), timedelta(minutes=1))

    def test_moments_are_as_use_tz_says(self) -> None:
        made = self.finished(self.suite.add.enqueue(1, 1))
        for value in (made.enqueued_at, made.started_at, made.finished_at):
            assert value is not None
            self.assertTrue(timezone.is_aware(value))

    def test_a_result_is_found_from_another_thread(self) -> None:
        made = self.finished(self.suite.add.enqueue(2, 3))
        found: list[Any] = []

        def look() -> None:
            from django.db import connections

            try:
                found.append(self.suite.add.get_result(made.id).return_value)
            finally:
                connections.close_all()

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        self.assertEqual(found, [5])

    def test_a_result_is_found_from_async_code(self) -> None:
        made = self.finished(self.suite.add.enqueue(2, 3))

        async def look() -> list[Any]:
            by_task, by_backend = await self.suite.add.aget_result(made.id), await self.tasks.aget_result(made.id)
            return [by_task.return_value, by_backend.return_value]

        self.assertEqual(async_to_sync(look)(), [5, 5])

    def test_a_result_is_refreshed_in_place(self) -> None:
        made = self.suite.add.enqueue(2, 3)
        self.run_tasks()
        self.assertEqual(made.status, READY)
        made.refresh()
        self.assertEqual((made.status, made.return_value), (SUCCESSFUL, 5))

    def test_a_result_is_refreshed_from_async_code(self) -> None:
        made = self.suite.fail.enqueue()
        self.run_tasks()
        async_to_sync(made.arefresh)()
        self.assertEqual((made.status, len(made.errors)), (FAILED, 1))

    def test_an_id_that_was_never_given_has_no_result(self) -> None:
        numbers = ("123456789", "-1", "0", "9" * 5000, "٣")
        for id in (*numbers, str(uuid4()), uuid4().hex, "no such id", "", "x" * 63, "' OR 1=1 --"):
            with self.assertRaises(TaskResultDoesNotExist, msg=id):
                self.tasks.get_result(id)

            async def look(id: str = id) -> None:
                await self.tasks.aget_result(id)

            with self.assertRaises(TaskResultDoesNotExist, msg=id):
                async_to_sync(look)()

    def test_a_task_does_not_give_the_result_of_another(self) -> None:
        made = self.suite.add.enqueue(1, 2)
        with self.assertRaises(TaskResultMismatch):
            self.suite.fail.get_result(made.id)

        async def look() -> None:
            await self.suite.fail.aget_result(made.id)

        with self.assertRaises(TaskResultMismatch):
            async_to_sync(look)()

    def test_the_task_of_a_result_is_as_it_was_enqueued(self) -> None:
        self.need("priority", "defer")
        at = datetime(2100, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
        made = self.suite.add.using(priority=-7, run_after=at).enqueue(1, 2)
        task = self.tasks.get_result(made.id).task
        self.assertEqual((task.priority, task.run_after, task.queue_name), (-7, at, "default"))


class Ordering(Suite):
    """Priorities and times."""

    def test_higher_priorities_come_first(self) -> None:
        self.need("priority")
        priorities = [0, 100, -100, 1, -1, 50, -50, 99, -99]
        for priority in priorities:
            self.suite.note.using(priority=priority).enqueue(priority)
        self.assertEqual(self._in_order(), sorted(priorities, reverse=True))

    def test_every_priority_has_its_place(self) -> None:
        self.need("priority")
        priorities = list(range(-100, 101, 2)) + list(range(-99, 100, 2))
        for priority in priorities:
            self.suite.note.using(priority=priority).enqueue(priority)
        self.assertEqual(self._in_order(), list(range(100, -101, -1)))

    def test_equal_priorities_come_in_the_order_of_their_calls(self) -> None:
        for number in range(20):
            self.suite.note.enqueue(number)
        self.assertEqual(self._in_order(), list(range(20)))

    def test_priorities_out_of_range_are_refused(self) -> None:
        for priority in (-101, 101, 1.5, 1000):
            with self.assertRaises(InvalidTask):
                self.suite.add.using(priority=priority)
        if not self.tasks.supports_priority:
            with self.assertRaises(InvalidTask):
                self.suite.add.using(priority=1)

    def test_a_deferred_task_does_not_run_before_its_time(self) -> None:
        self.need("defer", "get_result")
        result = self.suite.note.using(run_after=timezone.now() + timedelta(days=1)).enqueue("tomorrow")
        self.suite.note.enqueue("now")
        self.run_tasks()
        result.refresh()
        self.assertEqual((result.status, result.attempts), (READY, 0))
        self.assertEqual(self.ran(), ["now"])

    def test_a_deferred_task_runs_when_its_time_has_come(self) -> None:
        self.need("defer", "get_result")
        at = timezone.now() + timedelta(seconds=self.delay)
        result = self.suite.add.using(run_after=at).enqueue(2, 3)
        while timezone.now() < at:
            time.sleep(0.02)
        self.assertEqual(self.finished(result).return_value, 5)
        assert result.started_at is not None
        self.assertGreaterEqual(result.started_at, at - timedelta(milliseconds=5))

    def test_a_time_that_has_gone_is_now(self) -> None:
        self.need("defer", "get_result")
        result = self.suite.add.using(run_after=timezone.now() - timedelta(hours=1)).enqueue(2, 3)
        self.assertEqual(self.finished(result).return_value, 5)

    def test_a_naive_time_is_refused(self) -> None:
        self.need("defer")
        with self.assertRaises(InvalidTask):
            self.suite.add.using(run_after=datetime(2100, 1, 1))

    def test_defer_is_refused_where_it_is_not_supported(self) -> None:
        if self.tasks.supports_defer:
            self.skipTest("the backend supports defer")
        with self.assertRaises(InvalidTask):
            self.suite.add.using(run_after=timezone.now())

    def _in_order(self) -> list[Any]:
        self.run_tasks_in_order()
        return self.ran()

    def run_tasks_in_order(self) -> None:
        """As `run_tasks`, one after the other: override it where that runs several at once."""
        self.run_tasks()


class Transactions(Suite):
    """Tasks that are enqueued in a transaction of the default database."""

    def test_a_task_of_a_transaction_runs_after_its_commit(self) -> None:
        with transaction.atomic():
            result = self.suite.note.enqueue("committed")
            self.assertEqual(result.status, READY)
        self.run_tasks()
        self.assertEqual(self.ran(), ["committed"])

    def test_its_result_is_found_by_the_same_id_after_the_commit(self) -> None:
        self.need("get_result")
        with transaction.atomic():
            result = self.suite.add.enqueue(2, 3)
        found = self.tasks.get_result(result.id)
        self.assertEqual((found.id, found.status, found.args), (result.id, READY, [2, 3]))
        self.assertEqual(self.finished(result).return_value, 5)
        self.assertEqual(self.tasks.get_result(result.id).return_value, 5)

    def test_a_task_of_a_transaction_that_is_rolled_back_never_runs(self) -> None:
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            result = self.suite.note.enqueue("rolled back")
            raise ZeroDivisionError
        self.run_tasks()
        self.assertEqual(self.ran(), [])
        if self.tasks.supports_get_result:
            with self.assertRaises(TaskResultDoesNotExist):
                self.tasks.get_result(result.id)

    def test_a_task_of_a_savepoint_that_is_rolled_back_never_runs(self) -> None:
        with transaction.atomic():
            self.suite.note.enqueue("before")
            with self.assertRaises(ZeroDivisionError), transaction.atomic():
                self.suite.note.enqueue("in the savepoint")
                raise ZeroDivisionError
            self.suite.note.enqueue("after")
        self.run_tasks()
        self.assertEqual(sorted(self.ran()), ["after", "before"])

    def test_a_failed_task_of_a_transaction_has_its_error(self) -> None:
        self.need("get_result")
        with transaction.atomic():
            result = self.suite.fail.enqueue("in a transaction")
        self.finished(result)
        self.assertEqual(result.status, FAILED)
        self.assertIn("in a transaction", result.errors[0].traceback)

    def test_the_context_has_the_id_that_the_caller_got(self) -> None:
        self.need("get_result")
        with transaction.atomic():
            result = self.suite.look_around.enqueue("value")
        self.assertEqual(self.finished(result).return_value["id"], result.id)


class BackendConformance(Enqueueing, Running, Results, Ordering, Transactions):
    """All of it. Mix it into a `TransactionTestCase`; each part may be taken alone, too."""
