"""The backend of Django's tasks that `TASKS` names: it enqueues and reads results."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, ParamSpec, TypeVar

from django.core.checks import CheckMessage
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from accoda.django import registry
from accoda.django.checks import check_backend
from accoda.django.compat import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    task_enqueued,
)
from accoda.django.jobs import KEY, call_of, new_job
from accoda.django.lookup import as_ready, name_job, name_key, new_name, read_row, row_of, stored_job
from accoda.django.project import Project, project_of
from accoda.django.results import new_result, read_runs, result_of, set_fields
from accoda.django.task import AccodaTask
from accoda.envelope import TYPE_LENGTH, type_of
from accoda.errors import AccodaError, InvalidInput
from accoda.model import JobInfo, NewJob, check_queue

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE = 2.0
"""Seconds that the caller of a commit waits for a store that is away."""

log = logging.getLogger("accoda.django")


class AccodaBackend(BaseTaskBackend):
    """Tasks as jobs of Accoda: `TASKS = {"default": {"BACKEND": "accoda.django.AccodaBackend"}}`.

    `OPTIONS` are those of `accoda.django.options.BackendOptions`.
    """

    task_class = AccodaTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def project(self) -> Project:
        """The app behind it, with its options: one for the process, while Django has a backend for each thread."""
        return project_of(self.alias)

    def validate_task(self, task: Task[..., Any]) -> None:
        if task.run_after is not None and not isinstance(task.run_after, datetime):
            raise InvalidTask(f"run_after must be a datetime, such as timezone.now() + delay, not {task.run_after!r}.")
        super().validate_task(task)
        path = task.module_path
        if "<" in path:
            raise InvalidTask(f"{path} has no name by which a worker could find it; define it with def")
        if len(path) > TYPE_LENGTH:
            raise InvalidTask(f"The path of a task may have {TYPE_LENGTH} characters; {path} has {len(path)}.")
        try:
            check_queue(task.queue_name)
        except InvalidInput as error:
            raise InvalidTask(f"Queue {task.queue_name!r} is not valid for Accoda: {error}") from error
        registry.note(task)

    def enqueue(self, task: Task[P, R], args: Sequence[Any], kwargs: dict[str, Any]) -> TaskResult[P, R]:
        """Enqueue a call. In a transaction of the place's database it is part of that, or follows its commit."""
        self.validate_task(task)
        project, call = self.project, call_of(args, kwargs)
        place, app = project.place, project.app
        connection = connections[place.database]
        in_transaction = is_in_transaction(connection)
        # A job that has no id at once gets a name, which travels with it and by which its result is found.
        name = new_name() if in_transaction and place.way != "direct" else None
        job = new_job(app, task, call, project.options, name)
        if name is not None and place.way == "on_commit":
            result: TaskResult[P, R] = new_result(task, name, call, self.alias, enqueued_at=None)
            transaction.on_commit(OnCommit(self, project, job, result), using=place.database)
            return result
        if in_transaction:
            row = None if name is None else row_of(name)
            (told,) = app.transactions.enqueue_blocking(connection, [job], app.sync.run, row)
            if connection.in_atomic_block:  # elsewhere are no callbacks, and the result is found after the commit
                if name is None:
                    transaction.on_commit(Uncommitted(project, job, str(told.id)), using=place.database)
                elif job.key != KEY + name:
                    transaction.on_commit(partial(say_key, project, name, job), using=place.database)
        else:
            (told,) = project.ask(app.storage.enqueue([job]))
        result = new_result(task, name or str(told.id), call, self.alias, enqueued_at=timezone.now())
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        project, id = self.project, str(result_id)
        store = project.app.storage
        job = project.ask(stored_job(store, id)) or self._on_its_way(project, id)
        if job is None:
            raise TaskResultDoesNotExist(id)
        task = registry.find(type_of(job.data) or "")
        if task is None:
            raise TaskResultDoesNotExist(f"{id}: its task is not one of this project: {type_of(job.data)}")
        has_runs = job.attempts or job.state in ("dead", "cancelled")
        runs = project.ask(read_runs(store, job.id)) if has_runs else []
        return result_of(self.alias, task, id, job, runs)

    def _on_its_way(self, project: Project, id: str) -> JobInfo | None:
        """A job that is not in the store yet."""
        for waiting in uncommitted(project):
            if waiting.id == id and not waiting.done:
                return as_ready(waiting.job)
        row = row_of(id)
        if row is None or project.place.way != "outbox":
            return None
        job = read_row(project.place.database, row)
        # A row is deleted when its job is in the store: if neither was found, it may have gone there between the looks.
        return project.ask(stored_job(project.app.storage, id)) if job is None else as_ready(job)

    def check(self, **_: Any) -> list[CheckMessage]:
        return list(check_backend(self))


def is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Inside `atomic()`, or with `set_autocommit(False)`, where the caller commits."""
    if connection.in_atomic_block:
        return True
    opened: object = connection.connection  # asking for the autocommit of one that is not open would open it
    return not (connection.settings_dict["AUTOCOMMIT"] if opened is None else connection.autocommit)


def say_key(project: Project, name: str, job: NewJob) -> None:
    """After the commit: the key by which the job of a result is found. Only a result depends on it, and no job."""
    keep_for = project.keep_for(type_of(job.data))
    try:
        project.ask(name_key(project.app.storage, name, job, keep_for), at_most=PATIENCE)
    except AccodaError as error:
        log.warning("the result %s is not found before the first run of its task: %s", name, error)


class Uncommitted:
    """A job of the open transaction. Where it is a row of that, nobody else sees it, and the commit needs no help."""

    def __init__(self, project: Project, job: NewJob, id: str) -> None:
        self.project = project
        self.job = job
        self.id = id
        self.done = False

    def __call__(self) -> None:
        self.done = True


class OnCommit(Uncommitted):
    """Enqueues a job after the commit, and says which job the result is of."""

    def __init__(self, backend: AccodaBackend, project: Project, job: NewJob, result: TaskResult[..., Any]) -> None:
        super().__init__(project, job, result.id)
        self.result = result
        self._backend = backend

    def __call__(self) -> None:
        if self.done:  # a test has run it before the commit
            return
        self.done = True
        store = self.project.app.storage
        told = self.project.ask(store.enqueue([self.job]))[0]
        keep_for = self.project.keep_for(type_of(self.job.data))
        self.project.ask(name_job(store, self.result.id, told.id, keep_for))
        set_fields(self.result, enqueued_at=timezone.now())
        task_enqueued.send(type(self._backend), task_result=self.result)


def uncommitted(project: Project) -> list[Uncommitted]:
    """The jobs of this thread's transaction that no other connection sees, without those of savepoints rolled back."""
    waiting = connections[project.place.database].run_on_commit
    found = [entry[1] for entry in waiting if isinstance(entry[1], Uncommitted)]
    return [one for one in found if one.project is project]


def on_commit(project: Project) -> list[OnCommit]:
    """What this thread's transaction enqueues when it commits."""
    return [one for one in uncommitted(project) if isinstance(one, OnCommit)]
