"""The two sources that do not change while a process runs: its environment and its command line."""

from __future__ import annotations

from collections.abc import Mapping

from accoda.errors import SettingsError
from accoda.settings.entries import Found, Value
from accoda.settings.knobs import NAMES, QUEUE_KNOBS, WORKER_KNOBS, suggest
from accoda.settings.paths import PREFIX, Path, SettingPath, parse_path

# Longest first: …_VISIBILITY_TIMEOUT is the lease of a queue, not the `timeout` of one called `…-visibility`.
_ENDINGS = sorted(NAMES, key=len, reverse=True)


class Variables:
    """Settings in the environment, looked up by name: `-`, `.` and `_` in a queue's name are the same here."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.warnings: tuple[str, ...] = ()
        self._values: dict[str, tuple[str, Value]] = {}
        problems: list[str] = []
        for variable, text in sorted(environ.items()):
            if variable.startswith(PREFIX) and text.strip():
                self._take(variable, text, problems)
        if problems:
            raise SettingsError(*problems)

    def get(self, place: SettingPath) -> Value | None:
        knob, value = self._values.get(place.variable, ("", None))
        return value if knob == place.knob else None

    def named(self) -> list[tuple[str, str]]:
        """The middle of each name (a worker, a queue, or both joined by `_QUEUE_`) and its knob."""
        return [(name[len(PREFIX) : -len(knob) - 1], knob) for name, (knob, _) in self._values.items()]

    def _take(self, variable: str, text: str, problems: list[str]) -> None:
        source = f"environment {variable}"
        knob = next((name for name in _ENDINGS if variable.endswith("_" + name.upper())), None)
        if knob is None or len(variable) <= len(PREFIX) + len(knob) + 1:
            # Not refused: the variable may come from elsewhere; Kubernetes makes one for each service.
            words = variable[len(PREFIX) :].lower().split("_")
            tail = "_".join(words[1:]) or words[0]
            self.warnings += (f"{source}: unknown setting, {suggest(tail)}",)
            return
        try:
            value = (QUEUE_KNOBS.get(knob) or WORKER_KNOBS[knob]).read(text)
        except ValueError as error:
            problems.append(f"{source}: {error}")
            return
        self._values[variable] = (knob, Value(value, source))


def read_overrides(overrides: Mapping[str, object], worker: str, service: Path) -> Found:
    """The options of the command line: a bare knob is the worker's, for all its queues; or a path. None: not given."""
    values: dict[SettingPath, Value] = {}
    problems: list[str] = []
    for key, raw in overrides.items():
        if raw is None:
            continue
        path = tuple(key.strip("/").split("/"))
        path = ("worker", "queue", worker, key) if len(path) == 1 else path
        path = path[len(service) :] if path[: len(service) + 1] == (*service, "worker") else path
        try:
            if path[:2] != ("worker", "queue"):
                raise ValueError(f"unknown setting {key[:120]!r}; write a knob, or worker/queue/{{name}}/{{knob}}")
            place = parse_path(path)
            values[place] = Value(place.kind.read(raw), "command line")
        except ValueError as error:
            problems.append(f"command line: {error}")
    if problems:
        raise SettingsError(*problems)
    return Found(values)
