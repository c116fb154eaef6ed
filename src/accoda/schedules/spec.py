"""What an app says of the queue of a schedule's jobs, in a form that is stored with the schedule. Pure.

Several apps may share a store, and any of their processes may do a tick. The job must not depend on which: its rank,
its cost, how long it is kept and the bytes of its payload are those of the app that has the handler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from msgspec import Struct

from accoda.enqueue import EnqueueOptions, QueueSpec, cost_of
from accoda.errors import InvalidInput
from accoda.handler_options import HandlerOptions
from accoda.model import NewJob
from accoda.payload import Codec, UnreadablePayload, converted, decode, encode
from accoda.priority import POLICIES, policy
from accoda.schedules.model import Schedule

MakeJob = Callable[[str, object, EnqueueOptions], NewJob]


class JobHost(Protocol):
    """What a tick needs of the app."""

    @property
    def demands(self) -> Mapping[str, object]: ...
    def new_job(self, queue: str, payload: object, options: EnqueueOptions) -> NewJob: ...


class Host(JobHost, Protocol):
    """What declared and changed schedules need of the app."""

    schedules: dict[str, Schedule]

    @property
    def handlers(self) -> Mapping[str, Any]: ...
    @property
    def specs(self) -> Mapping[tuple[str, str | None], QueueSpec]: ...
    def queue_spec(self, queue: str, type: str | None = None) -> QueueSpec: ...
    def add_handler(self, queue: str | None, function: Callable[..., Any], options: HandlerOptions) -> Any: ...
    def remove_handler(self, handler: Any) -> None: ...


class StoredSpec(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A `QueueSpec` as it is stored. `data` is the payload as the handler's codec writes it; None: as plain msgpack."""

    policy: str = "strict"
    data: bytes | None = None
    cost: int = 0
    keep_for: float = 0.0


class DemandQueue(InvalidInput):
    """A schedule's jobs cannot go to the queue of a demand or its companions. Carries `queue`."""

    def __init__(self, queue: str) -> None:
        super().__init__(
            "queue", f"{queue!r} belongs to a demand, whose jobs are made by requests of a key, in code; name another"
        )
        self.queue = queue


def check_no_demand(app: JobHost | None, queue: str) -> None:
    """Refuse the queue of a demand, as far as this app knows."""
    if app is not None and queue.partition(".")[0] in app.demands:
        raise DemandQueue(queue)


def maker_of(app: JobHost) -> MakeJob:
    """How an app makes the jobs of schedules; raises `DemandQueue`."""

    def make(queue: str, payload: object, options: EnqueueOptions) -> NewJob:
        check_no_demand(app, queue)
        return app.new_job(queue, payload, options)

    return make


def spec_of(app: Host | None, queue: str, type: str | None) -> QueueSpec | None:
    """An app's spec of a type of jobs. None: it has no handler of it, or its policy has no name to be stored under."""
    if app is None:
        return None
    handlers = app.handlers.get(queue)
    declared = (queue, type) in app.specs or (queue, None) in app.specs
    if not declared if handlers is None else handlers.find(type) is None:
        return None
    spec = app.queue_spec(queue, type)
    return spec if spec.policy in POLICIES.values() else None


def stored_spec(spec: QueueSpec, schedule: Schedule) -> StoredSpec:
    """The spec as it is stored with a schedule. `InvalidInput`: the queue's handler could not read the payload."""
    plain = encode(decode(encode(schedule.payload)))  # what the payload becomes in the record
    payload, data = _encoded(spec, schedule, plain)
    return StoredSpec(
        policy=next(name for name, one in POLICIES.items() if one is spec.policy),
        data=None if data == plain else data,
        cost=0 if schedule.cost is not None else cost_of(spec.cost, payload),
        keep_for=spec.keep_for,
    )


def restored_spec(queue: str, stored: StoredSpec) -> QueueSpec:
    """A spec that makes the same jobs in every process."""
    data = stored.data
    write = encode if data is None else lambda _: data
    return QueueSpec(queue, policy(stored.policy), write, stored.keep_for, stored.cost)


def _encoded(spec: QueueSpec, schedule: Schedule, plain: bytes) -> tuple[Any, bytes]:
    """The payload as the handler's type, and the bytes that the handler reads as that."""
    given, codec = schedule.payload, getattr(spec.encode, "__self__", None)
    if type(codec) is Codec:
        with suppress(UnreadablePayload):
            read = codec.decode(plain)
            return given if codec.type is Any else read, plain
    payload = _converted(spec, given, getattr(codec, "type", Any))
    return payload, spec.encode(payload)


def _converted(spec: QueueSpec, payload: Any, wanted: Any) -> Any:
    """The payload as the handler's type: bytes and records are text and maps in JSON and TOML."""
    if wanted is Any:
        return payload
    try:
        return converted(payload, wanted)
    except InvalidInput as error:
        try:
            spec.encode(payload)  # the handler may be able to read an object of another class
        except InvalidInput:
            raise error from error.__cause__
        return payload
