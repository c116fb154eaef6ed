"""`Snapshot`: all sources at one moment, and the lookup in them. `Settings`: the snapshot that follows its files."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from accoda.errors import SettingsError
from accoda.limits import environment_problems
from accoda.model import check_name
from accoda.settings.entries import Found, Value
from accoda.settings.files import SettingsFile
from accoda.settings.knobs import QUEUE_KNOBS, WORKER_KNOBS, suggest
from accoda.settings.paths import SettingPath, mangled, queue_paths
from accoda.settings.variables import Variables, read_overrides

log = logging.getLogger("accoda.settings")

Files = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Layer(Protocol):
    """One source. A mapping is one."""

    def get(self, path: SettingPath, /) -> Value | None: ...


class Snapshot:
    """Settings that never change. The strongest source that has a value wins; within it, the most specific path.

    Answers are cached, so that a loop may ask in every cycle. Two threads that ask at once both compute the same
    answer, and `setdefault` keeps one of them: that needs no lock.
    """

    def __init__(self, layers: tuple[Layer, ...], worker: str) -> None:
        self._layers = layers
        self._worker = worker
        self._answers: dict[tuple[object, ...], Value] = {}

    def worker(self, knob: str) -> Value:
        """A setting of the worker, or its default for all its queues."""
        known = self._answers.get((knob,))
        if known is not None:
            return known
        row = WORKER_KNOBS.get(knob) or QUEUE_KNOBS.get(knob)
        if row is None:
            raise SettingsError(f"unknown setting {knob!r}, {suggest(knob)}")
        answer = self._find([SettingPath(self._worker, None, knob)]) or Value(row.default, "default")
        return self._answers.setdefault((knob,), answer)

    def queue(self, queue: str, knob: str, code: Any = None, number: int | None = None) -> Value:
        """A setting of a queue. `code` is the handler's value, used if no other source has one."""
        key = (queue, knob, code, number)
        known = self._answers.get(key)
        if known is not None:
            return known
        row = QUEUE_KNOBS.get(knob)
        if row is None:
            belongs = (
                "is the worker's: ask settings.worker" if knob in WORKER_KNOBS else suggest(knob, tuple(QUEUE_KNOBS))
            )
            raise SettingsError(f"unknown setting {knob!r} of a queue, {belongs}")
        answer = self._find(queue_paths(self._worker, queue, knob, number))
        if answer is None and code is not None:
            try:
                answer = Value(row.read(code), "handler")
            except ValueError as error:
                raise SettingsError(f"handler of {queue}: {error}") from error
        return self._answers.setdefault(key, answer or Value(row.default, "default"))

    def queues(self) -> list[str]:
        """Every queue that a source names. A name may also be another worker's."""
        names: dict[str, None] = {}
        for place in (path for layer in self._layers if isinstance(layer, Mapping) for path in layer):
            if place.queue is not None:
                names[place.queue] = None
            elif place.name != self._worker and place.knob in QUEUE_KNOBS:
                names[place.name] = None
        seen = {mangled(name) for name in names}
        for name in self._names_in_environment():
            if mangled(name) not in seen:
                names[name] = None
        return sorted(names)

    def _find(self, paths: list[SettingPath]) -> Value | None:
        found = (layer.get(path) for layer in self._layers for path in paths)
        return next((value for value in found if value is not None), None)

    def _names_in_environment(self) -> Iterator[str]:
        for layer in self._layers:
            for middle, knob in layer.named() if isinstance(layer, Variables) else ():
                _, joined, queue = middle.partition("_QUEUE_")
                if joined:
                    yield queue.lower()
                elif middle != mangled(self._worker) and knob in QUEUE_KNOBS:
                    yield middle.lower()


class Settings:
    """Every knob and where its value comes from. `refresh` looks at the files once; `watch` does so periodically.

    >>> settings = Settings.load(environ={"ACCODA_WORKER_QUEUE_EMAILS_BATCH_SIZE": "25"})
    >>> settings.queue("emails", "batch_size")
    Value(value=25, source='environment ACCODA_WORKER_QUEUE_EMAILS_BATCH_SIZE')
    >>> settings.worker("max_processors")
    Value(value=1, source='default')
    """

    def __init__(self, service: str, worker: str) -> None:
        self.service = service
        self.worker_name = worker
        self._files: list[SettingsFile] = []
        self._overrides = Found({})
        self._variables = Variables({})
        self._failed: tuple[str, ...] = ()
        # Only `refresh` replaces `current`, one at a time; a reader gets the old snapshot or the new one.
        self._lock = threading.Lock()
        self.current = self._snapshot()
        """The settings of this moment. It does not change; `refresh` replaces it."""

    @classmethod
    def load(
        cls,
        files: Files | None = None,
        *,
        service: str | None = None,
        worker: str = "default",
        overrides: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        strict: bool = True,
    ) -> Settings:
        """Read every source. A `SettingsError` names everything that is wrong; without `strict`, `problems` does.

        `files` are paths (None: those of ACCODA_SETTINGS); of two files of a kind the later is the stronger.
        `overrides` are the strongest source: `{"max_processors": 8, "worker/queue/emails/batch_size": 5}`.
        """
        check_name("worker", worker)
        environ = os.environ if environ is None else environ
        settings = cls(service or environ.get("ACCODA_SERVICE") or "accoda", worker)
        settings._read(_paths(files, environ), overrides or {}, environ)
        if strict and settings._failed:
            raise SettingsError(*settings._failed)
        return settings

    def _read(self, paths: list[str], overrides: Mapping[str, object], environ: Mapping[str, str]) -> None:
        """Read all sources. One that is wrong is left out, and its problems are kept."""
        root = tuple(self.service.strip("/").split("/"))
        failed = list(environment_problems(environ))
        try:
            self._overrides = read_overrides(overrides, self.worker_name, root)
        except SettingsError as error:
            failed += error.problems
        try:
            self._variables = Variables(environ)
        except SettingsError as error:
            failed += error.problems
        for warning in self._variables.warnings:
            log.warning("settings: %s", warning)
        for path in paths:
            try:
                file = SettingsFile(path, root)
                self._files.append(file)
                file.load()
            except SettingsError as error:
                failed += error.problems
        self._failed = tuple(failed)
        self.current = self._snapshot()

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the files."""
        return tuple(file.path for file in self._files)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the sources now, a line for each, which begins with its source."""
        found = [*self._failed, *self._variables.warnings]
        for file in self._files:
            found += (*file.problems, *file.warnings)
        return tuple(dict.fromkeys(found))

    def worker(self, knob: str) -> Value:
        """The present value of a worker's setting."""
        return self.current.worker(knob)

    def queue(self, queue: str, knob: str, code: Any = None, number: int | None = None) -> Value:
        """The present value of a queue's setting; `code` is the handler's own, `number` the queue's in its contract."""
        return self.current.queue(queue, knob, code, number)

    def stale(self) -> bool:
        """Whether `refresh` has to read a file: one stat for each."""
        return any(file.stale() for file in self._files)

    def refresh(self) -> bool:
        """Read the files that changed. True if a value is different now."""
        with self._lock:
            before = [file.values for file in self._files]
            refreshed = [file.refresh() for file in self._files]
            if not any(refreshed):
                return False
            self.current = self._snapshot()
            changes = [
                change for file, old in zip(self._files, before, strict=True) for change in _changes(old, file.values)
            ]
        for change in changes:
            log.info("settings: %s", change)
        return bool(changes)

    async def watch(self, every: float = 0.5, changed: Callable[[Snapshot], object] | None = None) -> None:
        """Refresh periodically; call `changed` after each change, on this event loop. Cancel it to stop."""
        while True:
            await asyncio.sleep(every)
            # A stat takes microseconds. Reading and checking a large file takes longer, so it is done in a thread.
            if self.stale() and await asyncio.to_thread(self.refresh) and changed is not None:
                try:
                    changed(self.current)
                except Exception:
                    log.exception("settings: the callback after a change failed; the new values are in force")

    def _snapshot(self) -> Snapshot:
        shared = [file.values for file in reversed(self._files) if file.shared]
        own = [file.values for file in reversed(self._files) if not file.shared]
        layers: tuple[Layer, ...] = (self._overrides.values, self._variables, *shared, *own)
        return Snapshot(layers, self.worker_name)


def _paths(files: Files | None, environ: Mapping[str, str]) -> list[str]:
    if files is None:
        return [path for path in environ.get("ACCODA_SETTINGS", "").split(os.pathsep) if path.strip()]
    if isinstance(files, str | os.PathLike):
        return [os.fspath(files)]
    return [os.fspath(path) for path in files]


def _changes(old: Mapping[Any, Value], new: Mapping[Any, Value]) -> list[str]:
    """The values that are different, in words; a line that only moved is no change."""
    found = []
    for path in sorted({*old, *new}, key=str):
        was, now = old.get(path), new.get(path)
        if was is None and now is not None:
            found.append(f"{path} is now {now.value} ({now.source})")
        elif was is not None and now is None:
            found.append(f"{path} is no longer set (was {was.value}, {was.source})")
        elif was is not None and now is not None and was.value != now.value:
            found.append(f"{path} is now {now.value}, was {was.value} ({now.source})")
    return found
