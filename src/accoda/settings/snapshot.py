"""All sources at one moment, strongest first, and the lookup in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from accoda.errors import SettingsError
from accoda.settings.entries import Value
from accoda.settings.knobs import QUEUE_KNOBS, WORKER_KNOBS, guess
from accoda.settings.places import Place, mangled, queue_places, worker_place
from accoda.settings.variables import Variables


class Layer(Protocol):
    """One source: a mapping is one."""

    def get(self, place: Place, /) -> Value | None: ...


class Snapshot:
    """Settings that never change. The strongest source that says anything decides; within it, the most special path.

    Answers are remembered, so that a loop may ask in every cycle. Two threads that ask at once both work out the same
    answer, and `setdefault` keeps one of the two equals: that needs no lock.
    """

    def __init__(self, layers: tuple[Layer, ...], worker: str) -> None:
        self._layers = layers
        self._worker = worker
        self._answers: dict[tuple[object, ...], Value] = {}

    def worker(self, knob: str) -> Value:
        """A setting of the worker, or the one that it has for all its queues."""
        known = self._answers.get((knob,))
        if known is not None:
            return known
        row = WORKER_KNOBS.get(knob) or QUEUE_KNOBS.get(knob)
        if row is None:
            raise SettingsError(f"unknown setting {knob!r}, {guess(knob)}")
        answer = self._find([worker_place(self._worker, knob)]) or Value(row.default, "default")
        return self._answers.setdefault((knob,), answer)

    def queue(self, queue: str, knob: str, code: Any = None, number: int | None = None) -> Value:
        """A setting of a queue. `code` is what its handler says, used where no other source says anything."""
        key = (queue, knob, code, number)
        known = self._answers.get(key)
        if known is not None:
            return known
        row = QUEUE_KNOBS.get(knob)
        if row is None:
            belongs = (
                "is the worker's: ask settings.worker" if knob in WORKER_KNOBS else guess(knob, tuple(QUEUE_KNOBS))
            )
            raise SettingsError(f"unknown setting {knob!r} of a queue, {belongs}")
        answer = self._find(queue_places(self._worker, queue, knob, number))
        if answer is None and code is not None:
            try:
                answer = Value(row.read(code), "handler")
            except ValueError as error:
                raise SettingsError(f"handler of {queue}: {error}") from error
        return self._answers.setdefault(key, answer or Value(row.default, "default"))

    def queues(self) -> list[str]:
        """Every queue that some source names, as far as a name tells: it might be another worker's."""
        names: dict[str, None] = {}
        for place in self._places():
            if place.queue is not None:
                names[place.queue] = None
            elif place.name != self._worker and place.knob in QUEUE_KNOBS:
                names[place.name] = None
        seen = {mangled(name) for name in names}
        for name in self._names_in_environment():
            if mangled(name) not in seen:
                names[name] = None
        return sorted(names)

    def _find(self, places: list[Place]) -> Value | None:
        for layer in self._layers:
            for place in places:
                value = layer.get(place)
                if value is not None:
                    return value
        return None

    def _places(self) -> Iterator[Place]:
        for layer in self._layers:
            if isinstance(layer, Mapping):
                yield from layer

    def _names_in_environment(self) -> Iterator[str]:
        for layer in self._layers:
            for middle, knob in layer.named() if isinstance(layer, Variables) else ():
                _, joined, queue = middle.partition("_QUEUE_")
                if joined:
                    yield queue.lower()
                elif middle != mangled(self._worker) and knob in QUEUE_KNOBS:
                    yield middle.lower()
