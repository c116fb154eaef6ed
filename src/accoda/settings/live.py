"""`Settings`: a snapshot of all sources that follows its files."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from accoda.errors import SettingsError
from accoda.limits import environment_problems
from accoda.model import check_name
from accoda.settings.entries import Found, Value
from accoda.settings.files import SettingsFile
from accoda.settings.places import Path
from accoda.settings.snapshot import Layer, Snapshot
from accoda.settings.variables import Variables, read_overrides

log = logging.getLogger("accoda.settings")

Files = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Settings:
    """Every knob and where its value comes from. `refresh` looks at the files once; `watch` does so again and again.

    >>> settings = Settings.load(environ={"ACCODA_WORKER_QUEUE_EMAILS_BATCH_SIZE": "25"})
    >>> settings.queue("emails", "batch_size")
    Value(value=25, source='environment ACCODA_WORKER_QUEUE_EMAILS_BATCH_SIZE')
    >>> settings.worker("max_processors")
    Value(value=1, source='default')
    """

    def __init__(self, service: str, worker: str, files: list[SettingsFile], fixed: Fixed) -> None:
        self.service = service
        self.worker_name = worker
        self.files = tuple(file.path for file in files)
        self._files = files
        self._fixed = fixed
        # Only `refresh` writes `current`, one at a time; who reads gets the old snapshot or the new one, both whole.
        self._lock = threading.Lock()
        self.current = self._snapshot()
        """The settings of this moment, which will not change under the caller's hands."""

    @classmethod
    def load(
        cls,
        files: Files | None = None,
        *,
        service: str | None = None,
        worker: str = "default",
        overrides: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Settings:
        """Read every source. Whatever is wrong with one is a `SettingsError` that names it.

        `files` are paths (None: those of ACCODA_SETTINGS); of two files of a kind the later is the stronger.
        `overrides` are the strongest source: `{"max_processors": 8, "worker/queue/emails/batch_size": 5}`.
        """
        settings, problems = cls.survey(files, service=service, worker=worker, overrides=overrides, environ=environ)
        if problems:
            raise SettingsError(*problems)
        return settings

    @classmethod
    def survey(
        cls,
        files: Files | None = None,
        *,
        service: str | None = None,
        worker: str = "default",
        overrides: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> tuple[Settings, tuple[str, ...]]:
        """As `load`, but leave out what is wrong and tell it: for people who want to see all that is wrong at once."""
        check_name("worker", worker)
        environ = os.environ if environ is None else environ
        service = service or environ.get("ACCODA_SERVICE") or "accoda"
        root = tuple(service.strip("/").split("/"))
        opened: list[SettingsFile] = []
        fixed, problems = Fixed.read(environ, overrides or {}, worker, root)
        problems += environment_problems(environ)
        for path in _paths(files, environ):
            try:
                file = SettingsFile(path, root)
                opened.append(file)
                file.load()
            except SettingsError as error:
                problems += error.problems
        return cls(service, worker, opened, fixed), problems

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the sources now, a line for each, which begins with its source."""
        told = [*self._fixed.warnings]
        for file in self._files:
            told += (*file.problems, *file.warnings)
        return tuple(told)

    def worker(self, knob: str) -> Value:
        """The present value of a worker's setting."""
        return self.current.worker(knob)

    def queue(self, queue: str, knob: str, code: Any = None, number: int | None = None) -> Value:
        """The present value of a queue's setting; `code` is the handler's own, `number` the queue's in its contract."""
        return self.current.queue(queue, knob, code, number)

    def stale(self) -> bool:
        """Whether `refresh` has something to look into: one stat for each file."""
        return any(file.stale() for file in self._files)

    def refresh(self) -> bool:
        """Look at each file once and read those that changed. True if some value is another one now."""
        with self._lock:
            before = [file.values for file in self._files]
            moved = [file.refresh() for file in self._files]
            if not any(moved):
                return False
            self.current = self._snapshot()
            changes = [
                change for file, old in zip(self._files, before, strict=True) for change in _changes(old, file.values)
            ]
        for change in changes:
            log.info("settings: %s", change)
        return bool(changes)

    async def watch(self, every: float = 0.5, changed: Callable[[Snapshot], object] | None = None) -> None:
        """Refresh for ever; call `changed` after each change, on this event loop. Cancel it to stop."""
        while True:
            await asyncio.sleep(every)
            # A stat costs microseconds. To read and check a large file takes longer, and jobs go on meanwhile.
            if self.stale() and await asyncio.to_thread(self.refresh) and changed is not None:
                try:
                    changed(self.current)
                except Exception:
                    log.exception("settings: what was to be done after a change failed; the new values are in force")

    def _snapshot(self) -> Snapshot:
        shared = [file.values for file in reversed(self._files) if file.shared]
        own = [file.values for file in reversed(self._files) if not file.shared]
        layers: tuple[Layer, ...] = (self._fixed.overrides.values, self._fixed.variables, *shared, *own)
        return Snapshot(layers, self.worker_name)


class Fixed:
    """The sources that stay as they were at the start."""

    def __init__(self, overrides: Found, variables: Variables) -> None:
        self.overrides = overrides
        self.variables = variables
        self.warnings = variables.warnings

    @classmethod
    def read(
        cls, environ: Mapping[str, str], overrides: Mapping[str, object], worker: str, service: Path
    ) -> tuple[Fixed, tuple[str, ...]]:
        """Both sources; one that has a problem is empty."""
        problems: tuple[str, ...] = ()
        given, variables = Found({}), Variables({})
        try:
            given = read_overrides(overrides, worker, service)
        except SettingsError as error:
            problems += error.problems
        try:
            variables = Variables(environ)
        except SettingsError as error:
            problems += error.problems
        for warning in variables.warnings:
            log.warning("settings: %s", warning)
        return cls(given, variables), problems


def _paths(files: Files | None, environ: Mapping[str, str]) -> list[str]:
    if files is None:
        return [path for path in environ.get("ACCODA_SETTINGS", "").split(os.pathsep) if path.strip()]
    if isinstance(files, str | os.PathLike):
        return [os.fspath(files)]
    return [os.fspath(path) for path in files]


def _changes(old: Mapping[Any, Value], new: Mapping[Any, Value]) -> list[str]:
    """What is another value than before, in words; a line that only moved is no change."""
    told = []
    for place in sorted({*old, *new}, key=str):
        was, now = old.get(place), new.get(place)
        if was is None and now is not None:
            told.append(f"{place} is now {now.value} ({now.source})")
        elif was is not None and now is None:
            told.append(f"{place} is no longer set (was {was.value}, {was.source})")
        elif was is not None and now is not None and was.value != now.value:
            told.append(f"{place} is now {now.value}, was {was.value} ({now.source})")
    return told
