"""The apps of a Django project: one for each alias of `TASKS` whose backend is Accoda's, in each process."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Coroutine, Mapping
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

from django.conf import settings
from django.core.exceptions import SynchronousOnlyOperation
from django.core.signals import setting_changed
from django.db.backends.base.base import NO_DB_ALIAS, BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.dispatch import receiver

from accoda.app import App
from accoda.connections import Connections
from accoda.django.compat import InvalidTaskBackend, task_backends
from accoda.django.jobs import said_or
from accoda.django.options import BackendOptions, Place, database_name, place_of, read_options
from accoda.django.registry import discover, find
from accoda.django.runs import fresh_connections, handler_of, note_failures
from accoda.django.task import AccodaTask
from accoda.errors import InvalidInput
from accoda.handler_options import HandlerOptions
from accoda.runtime.batch import current
from accoda.storage.common.reconnecting import limited_patience
from accoda.times import seconds
from accoda.transactions import Transactions

T = TypeVar("T")


class Project:
    """The app behind a backend, with what the settings say of it."""

    def __init__(self, alias: str, options: BackendOptions, place: Place) -> None:
        self.alias = alias
        self.options = options
        self.place = place
        middleware = [partial(note_failures, self)]
        self.app = App(place.url, outbox=place.outbox, around=[fresh_connections], middleware=middleware)
        self._lock = threading.Lock()
        self._has_handlers = False
        self._name = database_name(place.database)

    def follow(self) -> None:
        """Go where the database went: a test runner renames it, perhaps after a module has asked for the app."""
        name = database_name(self.place.database)
        if name == self._name or self.app.connections.in_trial:
            return
        with self._lock:
            if name == self._name:
                return
            app, self.place = self.app, _place(self.alias, self.options)
            app.sync.close()
            app.url, app.connections = self.place.url, Connections(self.place.url)
            app.transactions = Transactions(lambda: app.connections, self.place.outbox)
            self._name = name

    def with_handlers(self) -> App:
        """The app with a handler for every task of the project, in every queue of the backend: for workers."""
        with self._lock:
            if not self._has_handlers:
                queues = set(task_backends[self.alias].queues) | set(self.options.queues)
                for task in discover().values():
                    for queue in sorted(queues | {task.queue_name}):
                        options: HandlerOptions = {**self.options.for_handlers, **self.options.for_queue(queue)}
                        self.app.add_handler(queue, *handler_of(self.alias, task, options))
                self._has_handlers = True
        return self.app

    def ask(self, call: Coroutine[Any, Any, T], at_most: float = math.inf) -> T:
        """What the store answers to a view or a script, which does not wait for ever for a store that is away."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            call.close()
            raise SynchronousOnlyOperation("You cannot call this from an async context - use aenqueue or aget_result.")
        patience = math.inf if current.get() is not None else self.app.connections.timeout
        with limited_patience(min(patience, at_most)):
            return self.app.sync.run(call)

    def keep_for(self, path: str | None) -> float:
        """Seconds for which results of a task are kept."""
        task = find(path or "")
        return seconds("keep_for", said_or(task, "keep_for", self.options.keep_for) or 0.0)


_projects: dict[str, Project] = {}
_lock = threading.Lock()


def project_of(alias: str = "default") -> Project:
    """The project's part behind a backend. Django has a backend object for each thread; this there is once."""
    found = _projects.get(alias)
    if found is None:
        with _lock:
            found = _projects.get(alias)
            if found is None:
                found = _projects[alias] = _make(alias)
    found.follow()
    return found


def app_of(alias: str = "default") -> App:
    """The `App` of a backend: for schedules, flows, budgets, and all that Django's tasks have no word for."""
    return project_of(alias).app


def aliases() -> list[str]:
    """The aliases of `TASKS` whose backend is Accoda's."""
    return [alias for alias in task_backends if issubclass(task_backends[alias].task_class, AccodaTask)]


def _make(alias: str) -> Project:
    try:
        options = _options(alias)
        return Project(alias, options, _place(alias, options))
    except InvalidInput as error:
        raise InvalidTaskBackend(f"TASKS[{alias!r}]['OPTIONS']: {error}") from error


def _options(alias: str) -> BackendOptions:
    given: Mapping[str, Any] = getattr(settings, "TASKS", {}).get(alias, {}).get("OPTIONS", {})
    return read_options(given)


def _place(alias: str, options: BackendOptions) -> Place:
    """Where the jobs of a backend go. A row of an outbox names no store: one store has those of a table."""
    place = place_of(options)
    if place.way != "outbox":
        return place
    for earlier in takewhile(alias.__ne__, getattr(settings, "TASKS", {})):
        if not issubclass(task_backends[earlier].task_class, AccodaTask):
            continue
        other = place_of(_options(earlier))
        if (other.way, other.database) != ("outbox", place.database):
            continue
        if other.url == place.url:
            return place
        if options.outbox is not None:
            raise InvalidInput(
                "outbox",
                f"the table in {place.database!r} has the jobs for the store of TASKS[{earlier!r}]; use False, so that "
                "tasks of a transaction are enqueued after its commit",
            )
        return Place(place.url, place.database, "on_commit")
    return place


@receiver(setting_changed)
def _forget(*, setting: str, **_: object) -> None:
    """`override_settings` in tests: the next use makes another app."""
    if setting in ("TASKS", "DATABASES"):
        with _lock:
            projects = list(_projects.values())
            _projects.clear()
        for project in projects:
            project.app.sync.close()


@receiver(connection_created)
def _let_go(*, connection: BaseDatabaseWrapper, **_: object) -> None:
    """A test runner drops or copies a database, which PostgreSQL refuses while it is in use. The next call connects."""
    if connection.alias == NO_DB_ALIAS:
        with _lock:
            projects = list(_projects.values())
        for project in projects:
            project.app.sync.close()
