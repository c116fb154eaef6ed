"""The path of a setting.

    {service}/worker/queue/{name}/{knob}                 name: a worker, for everything it does; or a queue
    {service}/worker/queue/{name}/queue/{queue}/{knob}   one queue, by name or by its contract's number

The service in front may be left out.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from accoda.limits import NAME_RULE, is_name
from accoda.settings.knobs import QUEUE_KNOBS, WORKER_KNOBS, Knob, suggest

Path = tuple[str, ...]
ROOT: Path = ("worker", "queue")
PREFIX = "ACCODA_WORKER_QUEUE_"


class SettingPath(NamedTuple):
    """`name` is a worker or a queue; `queue` is set in the deeper form only."""

    name: str
    queue: str | None
    knob: str

    def __str__(self) -> str:
        return "/".join((*ROOT, self.name, *(("queue", self.queue) if self.queue else ()), self.knob))

    @property
    def kind(self) -> Knob:
        """The knob that checks a value here. If the name may be a worker's or a queue's, either row of the table will
        do: both rows of one knob allow the same."""
        own = QUEUE_KNOBS if self.queue is not None else {**WORKER_KNOBS, **QUEUE_KNOBS}
        return own[self.knob]

    @property
    def variable(self) -> str:
        """Its name in the environment.

        >>> SettingPath("default", "deals.deliver", "batch_size").variable
        'ACCODA_WORKER_QUEUE_DEFAULT_QUEUE_DEALS_DELIVER_BATCH_SIZE'
        """
        queue = f"_QUEUE_{mangled(self.queue)}" if self.queue is not None else ""
        return f"{PREFIX}{mangled(self.name)}{queue}_{self.knob.upper()}"


def mangled(name: str) -> str:
    """A name as the environment can carry it: `-`, `.` and the like become `_`."""
    return re.sub("[^A-Z0-9]", "_", name.upper())


def queue_paths(worker: str, queue: str, knob: str, number: int | None) -> list[SettingPath]:
    """Where to look for a queue's setting, most specific first.

    The worker's own path comes last, except for knobs that the worker has for itself: its `max_processors` is the total
    of its loops, not the limit of each queue.
    """
    ids = [queue] if number is None else [str(number), queue]
    paths = [SettingPath(name, id, knob) for name in (worker, queue) for id in ids]
    paths.append(SettingPath(queue, None, knob))
    if knob not in WORKER_KNOBS:
        paths.append(SettingPath(worker, None, knob))
    return list(dict.fromkeys(paths))


def parse_path(path: Path) -> SettingPath:
    """A path that begins with `worker/queue`, or a `ValueError` that says what is wrong with it."""
    rest = path[len(ROOT) :]
    if len(rest) == 4 and rest[1] == "queue":
        name, _, queue, knob = rest
    elif len(rest) == 2:
        (name, knob), queue = rest, None
    else:
        raise ValueError(f"unknown setting {_text(path)}; {_advice(rest)}")
    known = QUEUE_KNOBS if queue is not None else {**WORKER_KNOBS, **QUEUE_KNOBS}
    for given in (name, queue):
        if given is not None and not is_name(given):
            raise ValueError(f"queue: {NAME_RULE}, not {given[:60]!r} as in {_text(path)}")
    if knob in known:
        return SettingPath(name, queue, knob)
    if knob in WORKER_KNOBS:
        raise ValueError(f"{knob} is the worker's, not one queue's; write it as worker/queue/{name}/{knob}")
    raise ValueError(f"unknown setting {knob[:60]!r} in {_text(path[:-1])}, {suggest(knob, tuple(known))}")


def _advice(rest: Path) -> str:
    if len(rest) < 2:
        return "the path is worker/queue/{name}/{setting}: the name of a worker or of a queue is missing"
    if len(rest) == 4 and rest[-1] in QUEUE_KNOBS:
        return f"{suggest(rest[1], ('queue',))} The path is worker/queue/{{name}}/queue/{{queue}}/{rest[-1]}"
    if rest[-1] in QUEUE_KNOBS:
        return f'a name with a dot needs quotes: worker.queue."{".".join(rest[:-1])[:100]}"'
    return "the path is worker/queue/{name}/{setting} or worker/queue/{name}/queue/{queue}/{setting}"


def _text(path: Path) -> str:
    text = "/".join(path)
    return text if len(text) <= 120 else text[:117] + "…"
