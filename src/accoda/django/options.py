"""The `OPTIONS` of a backend in `TASKS`, checked; and where its jobs go."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import quote, urlencode

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, connections
from msgspec import Struct

from accoda.app import DEFAULT_URL
from accoda.errors import InvalidInput
from accoda.handler_options import HandlerOptions, check_options
from accoda.model import check_queue
from accoda.retry import RetryRule
from accoda.storage.open import read_url

DAY = 86_400.0
HERE = "django"
"""The scheme of a URL that names one of Django's databases."""
QUEUE_OPTIONS = frozenset(HandlerOptions.__annotations__) - {
    *("type", "max_attempts", "max_crashes", "retry", "timeout", "keep_for", "secret", "renew", "run_in", "settle"),
    *("cost", "on_dead"),
}
"""The options of a handler that hold for a whole queue."""

Way = Literal["direct", "outbox", "on_commit"]
"""How a job of an open transaction gets into the store."""


class BackendOptions(Struct, frozen=True, kw_only=True):
    """What `OPTIONS` may say.

    `url`: where the jobs are, or "django://default": in that PostgreSQL database of `DATABASES`. `outbox`: the alias of
    the database whose transactions write jobs into the outbox table; True: "default"; False: jobs are enqueued after
    the commit. `queues`: what holds for a queue, by its name, such as `{"mail": {"concurrency": 5}}`. `keep_dead_for`:
    seconds for which failed jobs are kept; None: until they are deleted. The others are those of a task that says
    nothing else.
    """

    url: str | None = None
    outbox: bool | str | None = None
    queues: Mapping[str, HandlerOptions] = {}
    max_attempts: int | None = 1
    max_crashes: int | None = None
    retry: RetryRule | float | None = None
    timeout: float | timedelta | None = None
    keep_for: float | timedelta = DAY
    keep_dead_for: float | timedelta | None = None

    @property
    def for_handlers(self) -> HandlerOptions:
        """What holds for a task that says nothing else."""
        return {
            "max_attempts": self.max_attempts,
            "max_crashes": self.max_crashes,
            "retry": self.retry,
            "timeout": self.timeout,
            "keep_for": self.keep_for,
        }

    def for_queue(self, queue: str) -> HandlerOptions:
        """What holds for a queue."""
        return {"keep_dead_for": self.keep_dead_for, **self.queues.get(queue, {})}


def read_options(given: Mapping[str, Any]) -> BackendOptions:
    """The options, or `InvalidInput` that names the wrong one."""
    names = BackendOptions.__struct_fields__
    for name in given:
        if name not in names:
            raise InvalidInput(str(name), f"there is no such option; use {', '.join(names)}")
    options = BackendOptions(**given)
    _check_url(options.url)
    if options.outbox is not None and not isinstance(options.outbox, (bool, str)):
        raise InvalidInput("outbox", f"must be True, False or an alias of DATABASES, not {options.outbox!r:.60}")
    check_options(read_options, options.for_handlers)
    if not isinstance(options.queues, Mapping):
        raise InvalidInput("queues", f"must be a dict with the options of each queue, not {options.queues!r:.60}")
    for queue, said in options.queues.items():
        check_queue(queue)
        if not isinstance(said, Mapping):
            raise InvalidInput("queues", f"{queue}: must be a dict of options, not {said!r:.60}")
        wrong = set(said) - QUEUE_OPTIONS
        if wrong:
            raise InvalidInput(
                "queues", f"{min(wrong)} is no option of a queue ({queue}); use {', '.join(sorted(QUEUE_OPTIONS))}"
            )
        check_options(read_options, options.for_queue(queue))
    return options


class Place(Struct, frozen=True):
    """Where the jobs are, and how those of an open transaction on `database` get there."""

    url: str
    database: str
    way: Way
    outbox: str | None = None
    """The URL of the database that has the outbox."""


def place_of(options: BackendOptions) -> Place:
    """Where the jobs of a backend go. Asks `DATABASES` and no database."""
    url = options.url or os.environ.get("ACCODA_URL") or DEFAULT_URL
    scheme, _, alias = url.partition("://")
    if scheme == HERE:
        if _vendor(alias) != "postgresql":
            raise InvalidInput(
                "url",
                f"{url} is a {_vendor(alias)} database, and jobs can only be beside the tables of PostgreSQL; give a "
                "store of its own, such as sqlite:///jobs.db or redis://localhost:6379/0",
            )
        return Place(url_of(alias), alias, "direct")
    for alias in connections:
        if _vendor(alias) == "postgresql" and _is_at(url, connections[alias].settings_dict):
            return Place(url, alias, "direct")
    outbox = _outbox(options, url)
    if outbox is None:
        return Place(url, DEFAULT_DB_ALIAS, "on_commit")
    there = url_of(outbox)
    if scheme == "sqlite" and read_url(url).path == read_url(there).path:
        raise InvalidInput(
            "url", f"{url} is the file of the database {outbox!r} itself; give the jobs a file of their own beside it"
        )
    return Place(url, outbox, "outbox", there)


def _outbox(options: BackendOptions, url: str) -> str | None:
    """The alias of the database with the outbox. Where nothing is said, the default one if it can have the table."""
    if options.outbox is False:
        return None
    if options.outbox is None:
        fits = apps.is_installed("accoda.django") and _can_have_it(DEFAULT_DB_ALIAS)
        return DEFAULT_DB_ALIAS if fits and not url.startswith("memory:") else None
    alias = DEFAULT_DB_ALIAS if options.outbox is True else options.outbox
    if not _can_have_it(alias):
        raise InvalidInput(
            "outbox",
            f"an outbox is a table in PostgreSQL or an SQLite file, and {alias} is neither; use False, so that "
            "tasks of a transaction are enqueued after its commit",
        )
    return alias


def _can_have_it(alias: str) -> bool:
    """Whether workers can read a table of this database: one in memory is the process's own."""
    vendor, connection = _vendor(alias), cast(Any, connections[alias])
    return vendor == "postgresql" or (vendor == "sqlite" and not connection.is_in_memory_db())


def url_of(alias: str) -> str:
    """The URL of one of Django's databases."""
    settings = connections[alias].settings_dict
    name = str(settings["NAME"])
    if _vendor(alias) == "sqlite":
        return f"sqlite:///{Path(name).absolute()}"
    user = quote(settings["USER"] or "", safe="")
    password = f":{quote(settings['PASSWORD'], safe='')}" if settings["PASSWORD"] else ""
    host, port = settings["HOST"] or "", str(settings["PORT"] or "")
    query = {name: value for name, value in settings["OPTIONS"].items() if name.startswith("ssl")}
    if host.startswith("/"):  # the folder of a Unix socket
        query["host"], host = host, ""
    place = f"{user}{password}{'@' if user else ''}{f'[{host}]' if ':' in host else host}{f':{port}' if port else ''}"
    return f"postgresql://{place}/{quote(name, safe='')}{f'?{urlencode(query)}' if query else ''}"


def database_name(alias: str) -> str:
    """The name of one of Django's databases, which a test runner changes."""
    return str(connections.settings[alias]["NAME"])


def _check_url(url: object) -> None:
    if url is None:
        return
    if isinstance(url, str) and url.startswith(f"{HERE}://"):
        alias = url.removeprefix(f"{HERE}://")
        if alias not in connections:
            known = ", ".join(connections)
            raise InvalidInput("url", f"there is no database {alias!r} in DATABASES; it has {known or 'none'}")
        return
    read_url(url)


def _vendor(alias: str) -> str:
    if alias not in connections:
        raise InvalidInput("outbox", f"there is no database {alias!r} in DATABASES; it has {', '.join(connections)}")
    return connections[alias].vendor


def _is_at(url: str, settings: Mapping[str, Any]) -> bool:
    """Whether a store is in this PostgreSQL database, by what both say: the same host, port and name."""
    parts = read_url(url)
    if parts.scheme != "postgresql" or not parts.hostname:
        return False
    there = (parts.hostname, parts.port or 5432, parts.path.removeprefix("/"))
    return there == (str(settings["HOST"]).lower(), int(settings["PORT"] or 5432), str(settings["NAME"]))
