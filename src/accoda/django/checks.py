"""System checks: what is wrong with `TASKS`, before anything runs. Nothing is connected to.

`manage.py check` runs them by the backends; `--database default` also looks for the outbox table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage
from django.db import connections

from accoda.django.compat import BaseTaskBackend, InvalidTaskBackend, task_backends
from accoda.django.project import aliases, project_of
from accoda.errors import InvalidInput
from accoda.model import check_queue
from accoda.storage.open import read_url

DRIVERS = {
    "redis": ("hiredis", "redis"),
    "rediss": ("hiredis", "redis"),
    "redis+sentinel": ("hiredis", "redis"),
    "redis+cluster": ("hiredis", "redis"),
    "postgresql": ("asyncpg", "postgres"),
}
"""The module that a store needs, and the extra that installs it."""
OUTBOX, MIGRATIONS = "accoda_outbox", "django_migrations"


def check_backend(backend: BaseTaskBackend) -> Iterator[CheckMessage]:
    """What is wrong with one alias of `TASKS`."""
    try:
        project = project_of(backend.alias)
    except InvalidTaskBackend as error:
        yield checks.Error(str(error), id="accoda.E001")
        return
    module, extra = DRIVERS.get(read_url(project.place.url).scheme, ("", ""))
    if module and find_spec(module) is None:
        yield checks.Error(
            f"TASKS[{backend.alias!r}] needs {module}, which is not installed.",
            hint=f"pip install 'accoda[{extra}]'",
            id="accoda.E002",
        )
    if isinstance(name := settings.TASKS[backend.alias].get("QUEUES"), str):
        yield checks.Error(f"TASKS[{backend.alias!r}]['QUEUES']: must be a list, such as [{name!r}].", id="accoda.E003")
        return
    for queue in sorted(backend.queues):
        try:
            check_queue(queue)
        except InvalidInput as error:
            yield checks.Error(f"TASKS[{backend.alias!r}]['QUEUES']: {error}", id="accoda.E003")
    if not apps.is_installed("accoda.django"):
        advice = "Add 'accoda.django' to INSTALLED_APPS: it has manage.py accoda, which runs the worker."
        if project.place.way == "outbox":
            yield checks.Error("The outbox table has no migration.", hint=advice, id="accoda.E004")
        else:
            yield checks.Warning("Nothing runs the tasks.", hint=advice, id="accoda.W001")
    for other in aliases():
        # Each pair once, and only if both are good.
        if other < backend.alias and _share(backend.alias, other):
            yield checks.Warning(
                f"TASKS[{other!r}] and TASKS[{backend.alias!r}] share a store and a queue, so each runs tasks of the "
                "other.",
                hint="Give them different QUEUES.",
                id="accoda.W002",
            )


@checks.register(checks.Tags.database)
def check_outbox(
    app_configs: object = None, databases: Sequence[str] | None = None, **_: Any
) -> Iterable[CheckMessage]:
    """`check --database default`, and every migrate: the outbox table is there."""
    for alias in aliases():
        try:
            place = project_of(alias).place
        except InvalidTaskBackend:  # E001 says so
            continue
        if place.way != "outbox" or place.database not in (databases or ()):
            continue
        connection = connections[place.database]
        with connection.cursor() as cursor:
            tables = connection.introspection.table_names(cursor)
        if OUTBOX not in tables and MIGRATIONS in tables:  # not before the very first migrate
            yield checks.Warning(
                f"The database {place.database!r} has no table {OUTBOX}, so no task can be enqueued in its "
                "transactions.",
                hint="Run: python manage.py migrate accoda",
                id="accoda.W003",
            )


@checks.register(checks.Tags.security, deploy=True)
def check_deployment(app_configs: object = None, **_: Any) -> Iterable[CheckMessage]:
    """`check --deploy`: the jobs are somewhere where they stay."""
    for alias in aliases():
        try:
            project = project_of(alias)
        except InvalidTaskBackend:
            continue
        where = f"TASKS[{alias!r}]"
        if project.place.url.startswith("memory:"):
            yield checks.Error(
                f"{where} keeps its jobs in memory: no worker sees them, and they end with the process.",
                hint="Give it a url, such as redis://localhost:6379/0.",
                id="accoda.E010",
            )
        elif project.options.url is None and not os.environ.get("ACCODA_URL"):
            yield checks.Warning(
                f"{where} has no url, so its jobs are in accoda.db in the folder of whichever process runs.",
                hint=f"Give it a url, such as sqlite:///{settings.BASE_DIR if hasattr(settings, 'BASE_DIR') else ''}"
                "/jobs.db, or set ACCODA_URL.",
                id="accoda.W011",
            )


def _share(one: str, other: str) -> bool:
    try:
        same = project_of(one).place.url == project_of(other).place.url
    except InvalidTaskBackend:
        return False
    mine, theirs = task_backends[one].queues, task_backends[other].queues
    return same and (not mine or not theirs or not mine.isdisjoint(theirs))
