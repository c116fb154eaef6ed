"""What the backend does beyond what every backend of Django's tasks does."""

from __future__ import annotations

import logging
import pickle
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings
from django.utils import timezone
from tests.django.helpers import project, run, tasks_setting
from tests.django.project.shop import tasks

from accoda import App, Priority, limits
from accoda.django import AccodaTask, app_of, task
from accoda.django.compat import (
    InvalidTask,
    InvalidTaskBackend,
    TaskResultDoesNotExist,
    TaskResultStatus,
    default_task_backend,
    plain_task,
    task_backends,
    task_finished,
)
from accoda.django.jobs import call_of, new_job, ranked, read_call
from accoda.django.options import BackendOptions, read_options
from accoda.django.project import Project, project_of
from accoda.django.results import RUNS, StoredTaskError
from accoda.django.testing import capture_tasks
from accoda.enqueue import QueueSpec
from accoda.enqueue import new_job as plain_job
from accoda.envelope import type_of
from accoda.errors import InvalidInput
from accoda.model import ById, ByKey, Remove, StartNow


def later(**words: float) -> Any:
    return timezone.now() + timedelta(**words)


pytestmark = pytest.mark.usefixtures("clean_orders")


@pytest.fixture
def shop() -> Iterator[Project]:
    with project(outbox=False) as found:
        yield found


endless: list[Any] = []
endless.append(endless)


@plain_task
def add(first: int, second: int) -> int:
    return first + second


# -- retries


def test_a_task_is_tried_again_as_often_as_it_says_and_its_result_has_every_error(shop: Project) -> None:
    result = tasks.fail_twice.enqueue()
    run(shop)
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.return_value == [3, 2]  # it saw its attempt, and the errors before
    assert [error.exception_class for error in result.errors] == [LookupError, LookupError]
    assert ["attempt 1" in result.errors[0].traceback, "attempt 2" in result.errors[1].traceback] == [True, True]
    assert len(result.worker_ids) == result.attempts == 3
    assert result.started_at and result.last_attempted_at and result.finished_at
    assert result.started_at <= result.last_attempted_at <= result.finished_at


def test_a_task_whose_tries_are_over_has_failed_with_an_error_for_each(shop: Project) -> None:
    result = tasks.always_fails.enqueue()
    run(shop)
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.FAILED, 2, 2)


def test_task_finished_is_sent_once_after_the_last_try(shop: Project) -> None:
    told: list[Any] = []

    def note(sender: object, task_result: Any, **_: Any) -> None:
        told.append((task_result.id, str(task_result.status), len(task_result.errors)))

    task_finished.connect(note)
    try:
        good, bad = tasks.fail_twice.enqueue(), tasks.always_fails.enqueue()
        run(shop)
    finally:
        task_finished.disconnect(note)
    assert sorted(told) == sorted([(good.id, "SUCCESSFUL", 2), (bad.id, "FAILED", 2)])


@plain_task
def give(kind: str) -> Any:
    return {"large": 1 << 64, "long": "x" * (limits.allowed.result + 1), "half": "\ud800"}[kind]


@pytest.mark.parametrize("kind", ["large", "long", "half"])
def test_a_return_value_that_cannot_be_stored_has_failed_for_the_signals_too(shop: Project, kind: str) -> None:
    told: list[Any] = []

    def note(sender: object, task_result: Any, **_: Any) -> None:
        told.append(task_result.status)

    task_finished.connect(note)
    try:
        result = give.enqueue(kind)
        run(shop)
    finally:
        task_finished.disconnect(note)
    result.refresh()
    assert ([result.status], len(result.errors)) == (told, 1)
    assert told == [TaskResultStatus.FAILED]


def test_options_of_the_backend_hold_for_tasks_that_say_nothing_else() -> None:
    with project(outbox=False, max_attempts=3, retry=0) as found:
        result = plain_failing.enqueue()
        run(found)
        result.refresh()
    assert (result.attempts, len(result.errors)) == (3, 3)


@plain_task
def plain_failing() -> None:
    raise OSError("no such luck")


def test_a_failed_task_that_is_revived_runs_again(shop: Project) -> None:
    from accoda.model import Revive

    result = tasks.always_fails.enqueue()
    run(shop)
    shop.app.sync.run(shop.app.storage.change([Revive(int(result.id))]))
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.READY, 2)
    run(shop)
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.FAILED, 4, 4)


def test_a_task_over_its_timeout_has_failed_with_that_error(shop: Project) -> None:
    result = tasks.too_slow.enqueue()
    run(shop)
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    (error,) = result.errors
    assert error.exception_class_path == "accoda.errors.HandlerTimeout"


def test_a_cancelled_task_has_failed_because_of_that(shop: Project) -> None:
    result = add.enqueue(1, 2)
    assert shop.app.sync.cancel(int(result.id))
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class_path == "accoda.errors.JobCancelled"
    assert result.finished_at is not None


def test_a_run_in_debug_does_not_keep_the_queries_of_those_before_it(shop: Project) -> None:
    with override_settings(DEBUG=True):
        results = [queries.enqueue() for _ in range(40)]  # more than there are threads
        run(shop)
    for result in results:
        result.refresh()
    assert {result.return_value for result in results} == {1}


@plain_task
def queries() -> int:
    """How many queries this run's connection has logged."""
    tasks.Order.objects.count()
    return len(connection.queries)


# -- options of a task


def test_tasks_of_one_key_are_one_job(shop: Project) -> None:
    first, second, other = tasks.keyed.enqueue(7), tasks.keyed.enqueue(number=7), tasks.keyed.enqueue(8)
    assert first.id == second.id != other.id
    assert run(shop) == 2


def test_key_and_lane_are_filled_in_from_the_arguments(shop: Project) -> None:
    result = tasks.keyed.enqueue(7, customer="anna")
    job = shop.app.sync.find(int(result.id))
    assert job is not None and (job.key, job.lane) == ("order-7", "anna")


def test_a_key_may_be_a_function_of_the_arguments(shop: Project) -> None:
    by_parity = tasks.keyed.using(key=lambda number: f"parity-{number % 2}")
    assert by_parity.enqueue(1).id == by_parity.enqueue(3).id != by_parity.enqueue(2).id


def test_a_key_that_names_no_argument_is_refused_and_nothing_is_enqueued(shop: Project) -> None:
    with pytest.raises(InvalidInput, match=r"key: 'order-\{order\}' cannot be filled in from the arguments"):
        tasks.keyed.using(key="order-{order}").enqueue(1)
    assert run(shop) == 0


def test_an_option_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(InvalidTask, match="max_atempts: there is no such option of a task; use max_attempts"):
        task(max_atempts=3)(add.func)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("option", "value"), [("max_attempts", 0), ("timeout", -1), ("retry", "soon"), ("key", 7), ("secret", "card")]
)
def test_an_option_that_no_job_could_have_is_refused_where_the_task_is_declared(option: str, value: Any) -> None:
    with pytest.raises(InvalidTask, match=rf"test_backend.add: {option}: "):
        task(**{option: value})(add.func)


def test_using_keeps_the_options_and_changes_some() -> None:
    changed = tasks.fail_twice.using(priority=5, max_attempts=9)
    assert (changed.priority, changed.max_attempts, changed.retry) == (5, 9, 0)
    assert tasks.fail_twice.max_attempts == 3


def test_a_limit_of_tries_by_using_holds_for_that_job(shop: Project) -> None:
    result = tasks.always_fails.using(max_attempts=4).enqueue()
    run(shop)
    result.refresh()
    assert result.attempts == 4


def test_what_only_the_worker_can_know_is_no_option_of_a_single_call() -> None:
    with pytest.raises(InvalidTask, match="timeout: there is no such option of a single call; use max_attempts"):
        tasks.keyed.using(timeout=3)  # type: ignore[call-arg]


def test_djangos_own_decorator_takes_the_options_where_it_passes_them_on() -> None:
    import django

    if django.VERSION[:2] == (6, 0):
        pytest.skip("Django 6.0 passes nothing on")
    made = plain_task(max_attempts=7)(add.func)  # type: ignore[call-overload]
    assert isinstance(made, AccodaTask) and made.max_attempts == 7


def test_a_secret_argument_is_not_in_the_error(shop: Project) -> None:
    result = tasks.charge.enqueue(card="4111111111111111")
    run(shop)
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert "4111111111111111" not in result.errors[0].traceback
    assert "was refused" in result.errors[0].traceback


# -- results


def test_results_are_kept_for_as_long_as_the_task_or_the_backend_says() -> None:
    with project(outbox=False, keep_for=60) as found:
        kept = [found.app.sync.find(int(one.enqueue(*args, **kwargs).id)) for one, args, kwargs in [
            (add, (1, 2), {}), (tasks.charge, (), {"card": "1"})
        ]]  # fmt: skip
    assert [job.keep_for for job in kept if job is not None] == [60.0, 3600.0]


def test_the_name_of_an_exception_in_the_store_is_not_imported() -> None:
    error = StoredTaskError(exception_class_path="antigravity.Nothing", traceback="")
    with pytest.raises(ValueError, match="no exception of a module that is imported here"):
        error.exception_class  # noqa: B018 - the property raises
    assert "antigravity" not in sys.modules
    with pytest.raises(ValueError, match="no exception"):
        StoredTaskError(exception_class_path="os.system", traceback="").exception_class  # noqa: B018


@pytest.mark.parametrize(
    "path", ["antigravity.fly", "subprocess.check_output", "tests.django.project.shop.tasks.no_such", "just_a_name"]
)
def test_a_dotted_path_in_the_store_is_looked_up_and_never_imported(shop: Project, path: str) -> None:
    told = shop.app.sync.enqueue("default", {"args": [["exit", "1"]], "kwargs": {}}, type=path)
    run(shop)
    assert "antigravity" not in sys.modules
    job = shop.app.sync.find(told.id)
    assert job is not None and job.state == "delayed"  # a deploy may be under way: given back, and neither run nor lost
    with pytest.raises(TaskResultDoesNotExist, match="its task is not one of this project"):
        default_task_backend.get_result(str(told.id))


def test_a_result_of_no_task_does_not_exist(shop: Project) -> None:
    told = shop.app.sync.enqueue("default", "by another program")
    with pytest.raises(TaskResultDoesNotExist):
        default_task_backend.get_result(str(told.id))


def test_a_job_whose_arguments_cannot_be_read_has_failed_and_says_why(shop: Project) -> None:
    job = plain_job(QueueSpec("default"), {"args": 7}, lambda: 0, {"type": add.module_path})
    (told,) = shop.app.sync.run(shop.app.storage.enqueue([job]))
    run(shop)
    result = default_task_backend.get_result(str(told.id))
    assert result.status == TaskResultStatus.FAILED
    assert "args" in result.errors[0].traceback


def test_a_result_is_there_also_if_its_queue_has_gone_from_the_settings() -> None:
    with project(outbox=False) as found:
        setting = tasks_setting("memory://", outbox=False)
        id = add.enqueue(1, 2).id
        connections = found.app.connections
        setting["default"]["QUEUES"] = ["another"]
        with override_settings(TASKS=setting):
            project_of().app.connections = connections  # the same store
            assert default_task_backend.get_result(id).task.queue_name == "default"


def test_a_result_of_an_open_transaction_is_ready_inside_it(shop: Project) -> None:
    with transaction.atomic():
        result = add.enqueue(1, 2)
        found = default_task_backend.get_result(result.id)
        assert (found.status, found.args, found.id) == (TaskResultStatus.READY, [1, 2], result.id)


def test_a_task_of_a_transaction_is_enqueued_after_the_commit_where_there_is_no_outbox(shop: Project) -> None:
    with transaction.atomic():
        result = add.enqueue(1, 2)
        assert result.enqueued_at is None
        assert run(shop) == 0
    assert result.enqueued_at is not None
    assert run(shop) == 1
    result.refresh()
    assert result.return_value == 3


def test_a_result_in_the_outbox_is_ready_before_and_after_the_commit(tmp_path: Any) -> None:
    with project(f"sqlite:///{tmp_path}/jobs.db") as found:
        assert found.place.way == "outbox"
        with transaction.atomic():
            result = add.enqueue(1, 2)
            assert default_task_backend.get_result(result.id).status == TaskResultStatus.READY
        before = default_task_backend.get_result(result.id)
        assert (before.status, before.args) == (TaskResultStatus.READY, [1, 2])
        delayed = timezone.now() + timedelta(days=2)
        with transaction.atomic():
            later = add.using(run_after=delayed).enqueue(3, 4)
        run(found)  # relays both; the second waits
        assert default_task_backend.get_result(result.id).return_value == 3
        waiting = default_task_backend.get_result(later.id)
        assert (waiting.status, waiting.task.run_after) == (TaskResultStatus.READY, delayed)


@contextmanager
def commit_by_hand() -> Iterator[None]:
    transaction.set_autocommit(False)
    try:
        yield
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


def test_a_task_belongs_to_a_transaction_that_is_committed_by_hand(tmp_path: Any) -> None:
    with project(f"sqlite:///{tmp_path}/jobs.db") as found:
        with commit_by_hand():
            kept, keyed = add.enqueue(1, 2), tasks.keyed.enqueue(1)
            transaction.commit()
            add.enqueue(3, 4)
            transaction.rollback()
        assert run(found) == 2
        kept.refresh()
        keyed.refresh()
        assert (kept.return_value, keyed.return_value) == (3, 1)


def test_a_task_is_not_enqueued_before_a_commit_that_nobody_tells_of(shop: Project) -> None:
    with commit_by_hand(), pytest.raises(transaction.TransactionManagementError, match="manual transaction management"):
        add.enqueue(1, 2)
    assert run(shop) == 0


def test_a_result_of_a_task_with_a_key_is_found_while_it_waits_behind_the_outbox(tmp_path: Any) -> None:
    with project(f"sqlite:///{tmp_path}/jobs.db") as found:
        later = tasks.keyed.using(run_after=timezone.now() + timedelta(days=2))
        with transaction.atomic():
            first, duplicate, other = later.enqueue(7), later.enqueue(7), tasks.keyed.enqueue(8)
        run(found)
        for result in (first, duplicate):
            assert default_task_backend.get_result(result.id).status == TaskResultStatus.READY
            assert default_task_backend.get_result(result.id).args == [7]
        assert default_task_backend.get_result(other.id).return_value == 8
        waiting = found.app.sync.run(found.app.storage.look(ByKey("default", "order-7"))).job
        assert waiting is not None
        found.app.sync.run(found.app.storage.change([StartNow(waiting.id)]))
        run(found)
        for result in (first, duplicate):
            assert default_task_backend.get_result(result.id).return_value == 7


def test_a_result_is_never_that_of_a_later_job_with_its_key(tmp_path: Any) -> None:
    with project(f"sqlite:///{tmp_path}/jobs.db") as found:
        with transaction.atomic():
            first, duplicate = tasks.keyed.enqueue(7), tasks.keyed.enqueue(7)
        run(found)
        time.sleep(0.002)  # names have milliseconds
        with transaction.atomic():
            tasks.keyed.using(run_after=timezone.now() + timedelta(days=2)).enqueue(7)
        run(found)
        assert default_task_backend.get_result(first.id).return_value == 7
        with pytest.raises(TaskResultDoesNotExist):
            default_task_backend.get_result(duplicate.id)


def test_a_job_of_a_dead_process_that_could_not_name_it_is_found_once_it_has_run(shop: Project) -> None:
    name = "0190" + "a" * 28
    job = new_job(shop.app, add, call_of([1, 2], {}), shop.options, name)
    shop.app.sync.run(shop.app.storage.enqueue([job]))
    assert default_task_backend.get_result(name).status == TaskResultStatus.READY  # by its key
    run(shop)
    assert default_task_backend.get_result(name).return_value == 3  # by its document


@task(max_attempts=120, retry=0)
def stubborn() -> None:
    raise OSError("no such luck")


def test_notes_of_failed_runs_are_bounded(shop: Project) -> None:
    result = stubborn.enqueue()
    run(shop)
    result.refresh()
    assert len(result.errors) == 100
    assert sum(bool(error.traceback) for error in result.errors) == 10
    document = shop.app.sync.run(shop.app.storage.read(f"{RUNS}{result.id}"))
    assert document is not None and len(document.value) < 100_000


# -- retention


def test_the_result_of_a_success_is_there_for_as_long_as_it_is_kept() -> None:
    with project(outbox=False, keep_for=60), capture_tasks() as captured:
        done, waiting = add.enqueue(1, 2), add.using(run_after=later(days=3)).enqueue(3, 4)
        captured.run()
        captured.advance(59)
        assert default_task_backend.get_result(done.id).return_value == 3
        captured.advance(2)
        with pytest.raises(TaskResultDoesNotExist):
            default_task_backend.get_result(done.id)
        assert default_task_backend.get_result(waiting.id).status == TaskResultStatus.READY


def test_the_result_of_a_failure_is_there_until_it_is_deleted() -> None:
    with project(outbox=False, keep_for=60) as found, capture_tasks() as captured:
        failed = tasks.always_fails.enqueue()
        captured.run()
        captured.advance(days=20)
        assert len(default_task_backend.get_result(failed.id).errors) == 2
        captured.advance(days=100)  # the notes of its runs have gone; why it failed is with the job
        (error,) = default_task_backend.get_result(failed.id).errors
        assert "LookupError: always" in error.traceback
        found.app.sync.run(found.app.storage.change([Remove(int(failed.id))]))
        with pytest.raises(TaskResultDoesNotExist):
            default_task_backend.get_result(failed.id)


# -- queues and backends


def test_a_worker_of_some_queues_leaves_the_others_alone() -> None:
    setting = tasks_setting("memory://", outbox=False)
    setting["default"]["QUEUES"] = ["default", "other"]
    with override_settings(TASKS=setting):
        app = project_of().with_handlers()
        results = [add.enqueue(1, 2), add.using(queue_name="other").enqueue(3, 4)]
        assert app.sync.run_until_idle(["other"]) == 1
        assert [str(default_task_backend.get_result(each.id).status) for each in results] == ["READY", "SUCCESSFUL"]
        assert app.sync.run_until_idle() == 1


def test_a_worker_of_another_backend_leaves_its_tasks_alone() -> None:
    setting = tasks_setting("memory://", outbox=False)
    with override_settings(TASKS={**setting, "other": setting["default"]}):
        result = add.using(backend="other").enqueue(1, 2)
        assert result.backend == "other"
        assert project_of().with_handlers().sync.run_until_idle() == 0
        assert project_of("other").with_handlers().sync.run_until_idle() == 1
        result.refresh()
        assert result.return_value == 3


def two_stores(folder: Path, **options: Any) -> override_settings:
    one, two = (tasks_setting(f"sqlite:///{folder}/{name}.db")["default"] for name in ("one", "two"))
    two["OPTIONS"] |= options
    return override_settings(TASKS={"default": one, "two": two})


def test_a_task_of_a_transaction_gets_into_the_store_of_its_own_backend(tmp_path: Path) -> None:
    with two_stores(tmp_path):
        with transaction.atomic():
            first, second = add.enqueue(1, 2), add.using(backend="two").enqueue(3, 4)
        ran = [run(project_of(alias)) for alias in ("default", "two") if project_of(alias).with_handlers()]
        assert ran == [1, 1]
        first.refresh()
        second.refresh()
        assert (first.return_value, second.return_value) == (3, 7)


def test_an_outbox_that_two_stores_would_empty_is_refused(tmp_path: Path) -> None:
    with two_stores(tmp_path, outbox=True):
        (error,) = task_backends["two"].check()
        assert error.id == "accoda.E001" and "the table in 'default' has the jobs for the store of" in error.msg


def test_the_framework_logs_every_step(shop: Project, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        result = add.enqueue(1, 2)
        run(shop)
    said = [record.getMessage() for record in caplog.records if record.name in ("django.tasks", "django_tasks")]
    assert len(said) == 3 and all(result.id in each for each in said)


@pytest.mark.parametrize("use_tz", [True, False])
def test_the_time_of_a_task_is_as_use_tz_says(use_tz: bool, shop: Project) -> None:
    with override_settings(USE_TZ=use_tz):
        at = timezone.now().replace(microsecond=5000) + timedelta(days=1)
        soon, deferred = add.enqueue(1, 2), add.using(run_after=at).enqueue(3, 4)
        assert default_task_backend.get_result(soon.id).task.run_after is None
        found = default_task_backend.get_result(deferred.id)
        assert found.task.run_after == at and found.task == deferred.task
        assert found.enqueued_at is not None and timezone.is_aware(found.enqueued_at) == use_tz


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "named"),
    [
        ((1, {2}), {}, TypeError, "argument 2: Unsupported type: <class 'set'>"),
        ((1,), {"second": {"in": [timedelta(1)]}}, TypeError, "argument second: Unsupported type: .*timedelta"),
        ((b"\xff", 2), {}, ValueError, "argument 1: Unsupported value: <class 'bytes'>"),
        ((endless, 2), {}, ValueError, "argument 1: maximum recursion depth"),
    ],
)
def test_an_argument_that_json_cannot_say_is_named(
    shop: Project, args: Any, kwargs: Any, error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        add.enqueue(*args, **kwargs)


def test_a_length_is_no_moment_to_run_after() -> None:
    with pytest.raises(
        InvalidTask, match=r"run_after must be a datetime, such as .*, not datetime.timedelta\(days=1\)"
    ):
        add.using(run_after=timedelta(days=1))  # type: ignore[arg-type]


# -- the mapping


def test_priorities_keep_their_order_and_meet_the_levels() -> None:
    ranks = [ranked(2.0, priority) for priority in range(100, -101, -1)]
    assert ranks == sorted(set(ranks)) and len(ranks) == 201
    levels = {100: Priority.CRITICAL, 50: Priority.HIGH, 0: Priority.NORMAL, -50: Priority.LOW}
    assert {priority: ranked(2.0, priority) for priority in levels} == {p: float(level) for p, level in levels.items()}


def test_a_job_has_the_path_of_its_task_as_type_and_its_call_as_payload(shop: Project) -> None:
    result = add.using(priority=100).enqueue(1, second=2)
    look = shop.app.sync.run(shop.app.storage.look(ById(int(result.id))))
    assert look.job is not None
    assert (look.job.queue, look.job.rank, type_of(look.job.data)) == ("default", 0.0, add.module_path)
    call = read_call(look.job.data)
    assert (call.args, call.kwargs) == ([1], {"second": 2})


def test_the_app_of_a_backend_is_one_for_the_process(shop: Project) -> None:
    assert isinstance(app_of(), App)
    assert app_of() is shop.app


def test_a_task_can_be_pickled() -> None:
    import django

    if django.VERSION < (6, 1):
        pytest.skip("tasks can be pickled from Django 6.1 on")
    copy = pickle.loads(pickle.dumps(tasks.fail_twice))
    assert (copy.func, copy.max_attempts, copy.key) == (tasks.fail_twice.func, 3, None)


# -- the settings


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"ulr": "memory://"}, "ulr: there is no such option; use url, outbox"),
        ({"url": "mysql://x"}, "there is no storage for mysql://"),
        ({"url": "django://other"}, "there is no database 'other' in DATABASES"),
        ({"url": "django://default"}, "is a sqlite database"),
        ({"url": "memory://", "outbox": "other"}, "there is no database 'other'"),
        ({"url": "memory://", "outbox": 7}, "outbox: must be True, False or an alias"),
        ({"url": "memory://", "max_attempts": 0}, "max_attempts: must be an integer >= 1"),
        ({"url": "memory://", "queues": {"default": {"retries": 1}}}, "retries is no option of a queue"),
        ({"url": "memory://", "queues": ["default"]}, "queues: must be a dict with the options of each queue"),
        ({"url": "memory://", "queues": {"default": 5}}, "queues: default: must be a dict of options, not 5"),
        ({"url": "memory://", "keep_for": -1}, "keep_for"),
    ],
)
def test_a_wrong_option_is_refused_with_what_to_do(options: dict[str, Any], problem: str) -> None:
    with override_settings(TASKS={"default": {"BACKEND": "accoda.django.AccodaBackend", "OPTIONS": options}}):
        with pytest.raises(InvalidTaskBackend, match=problem):
            add.enqueue(1, 2)
        errors = default_task_backend.check()
    assert [error.id for error in errors] == ["accoda.E001"]


def test_jobs_need_a_file_of_their_own() -> None:
    setting = tasks_setting(f"sqlite:///{connection.settings_dict['NAME']}")
    with override_settings(TASKS=setting), pytest.raises(InvalidTaskBackend, match="of the database 'default' itself"):
        add.enqueue(1, 2)


def test_options_have_defaults_that_are_djangos_own_semantics() -> None:
    assert read_options({}) == BackendOptions()
    assert BackendOptions().max_attempts == 1


async def test_enqueue_in_async_code_says_which_call_to_use() -> None:
    from django.core.exceptions import SynchronousOnlyOperation

    with project(outbox=False), pytest.raises(SynchronousOnlyOperation, match="aenqueue"):
        default_task_backend.get_result("1")
