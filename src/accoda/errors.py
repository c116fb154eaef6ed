"""Every error that Accoda raises on purpose.

    AccodaError
    ├── InvalidInput            what was passed in cannot be used (also a ValueError); carries `field`
    │   └── TooLarge            it is over a limit; carries `size`, `limit`
    ├── JobNotFound             no such job is stored: finished and not kept, removed, or never there; carries `id`
    ├── NotFound                no queue, replay, flow, … of that name; carries `kind`, `name`
    ├── Conflict                the state of things does not allow it; the message says which it is
    │   ├── KeyReused           an idempotency key was used before, with other content; carries `key`
    │   └── InFlight            a request with the same idempotency key is being done; carries `key`
    ├── JobCancelled            the job whose result was asked for was cancelled; carries `id`
    ├── JobFailed               the job whose result was asked for is dead; carries `id`, `reason`
    ├── FlowEnded               the flow whose result was asked for is not done; carries `id`, `state`
    ├── ResultTimeout           the result did not come in time (also a TimeoutError); carries `id`
    ├── FlowTimeout             the same of a flow (also a TimeoutError); carries `id`
    ├── TokensTimeout           a budget had not enough tokens in time (also a TimeoutError); carries `budget`, `cost`
    ├── HandlerTimeout          a run took longer than its handler's `timeout`
    ├── HandlerLost             a run was stopped from outside; `LeaseLost` and `WorkerStopped` say why
    ├── ProcessDied             the child process that ran a job ended; `CannotStart`: it could not load the handler
    ├── RemoteError             stands for an error that a child process raised; carries `kind`, `kinds`, `text`
    ├── RetryLater, BuryJob     not trouble: what a handler raises to say what becomes of its job
    │   └── RateLimited         a RetryLater: the API has had enough; carries `delay` or `at`, `budget`
    ├── SettingsError           a setting, or the file it stands in, cannot be used; carries `problems`
    ├── ContractError           a contract cannot be used (also a ValueError); carries `problems`, each with its place
    ├── CannotListen            the port for metrics cannot be opened; carries `host`, `port`
    ├── VersionConflict         a document changed since it was read; carries `name`, `expected`, `found`
    └── StorageError            the store, not the call, is the trouble
        ├── MissingDriver       the storage needs an extra that is not installed
        ├── StorageUnavailable  cannot be reached, or stayed locked: try again; `unsure`: it may have been done
        ├── StorageClosed       used after `close`, or in a process forked after it was opened
        ├── StorageFull         no space left: nothing was changed
        ├── StorageReadOnly     the file or its folder may not be written
        ├── NotADatabase        the file is no database, is damaged, or belongs to another program
        └── SchemaMismatch      the store was written by a newer or a too old Accoda

Driver errors are translated into these at the storage's edge, with `from`, so that no caller has to know a driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta


class AccodaError(Exception):
    """The root: `except AccodaError` catches everything that Accoda raises on purpose."""


class InvalidInput(AccodaError, ValueError):
    """An argument that cannot be used. `field` names it; the message says what to pass instead."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class TooLarge(InvalidInput):
    """It is over a limit of `accoda.limits`. Nothing was stored. Carries `field`, `size` and `limit`."""

    def __init__(self, field: str, size: int, limit: int, unit: str = "bytes", advice: str = "") -> None:
        way_out = f"; {advice}" if advice else ""
        super().__init__(field, f"has {size:,} {unit}, and at most {limit:,} are allowed{way_out}")
        self.size = size
        self.limit = limit


class JobNotFound(AccodaError):
    """No job with this id is stored."""

    def __init__(self, id: int) -> None:
        super().__init__(
            f"job {id} is not stored: there never was one, it is done and was not kept (set keep_for), "
            "or it was cancelled or deleted"
        )
        self.id = id


class NotFound(AccodaError):
    """Something is not stored: `kind` says what ("queue"), `name` which."""

    def __init__(self, kind: str, name: str, advice: str = "") -> None:
        super().__init__(f"there is no {kind} {name!r}" + (f"; {advice}" if advice else ""))
        self.kind = kind
        self.name = name


class Conflict(AccodaError):
    """It cannot be done in the present state, which the message names. Nothing was changed."""


class KeyReused(Conflict):
    """The idempotency key belongs to another request: the same key, other content. Nothing was changed."""

    def __init__(self, key: str) -> None:
        super().__init__(f"idempotency key {key!r:.80} was used before with other content; use a new key for this")
        self.key = key


class InFlight(Conflict):
    """The same request, with the same idempotency key, is under way at this moment. Ask again soon."""

    def __init__(self, key: str) -> None:
        super().__init__(f"a request with idempotency key {key!r:.80} is being done; ask again in a moment")
        self.key = key


class JobFailed(AccodaError):
    """The job is among the dead letters, so its result will not come. `reason` says why it was buried."""

    def __init__(self, id: int, reason: str) -> None:
        super().__init__(f"job {id} is dead: {reason}")
        self.id = id
        self.reason = reason


class JobCancelled(AccodaError):
    """The job was cancelled, so its result will not come."""

    def __init__(self, id: int) -> None:
        super().__init__(f"job {id} was cancelled")
        self.id = id


class FlowEnded(AccodaError):
    """The flow failed, was cancelled or has expired, so its result will not come. `state` says which."""

    def __init__(self, id: str, state: str, problem: str) -> None:
        super().__init__(f"flow {id!r} is {state}: {problem}")
        self.id = id
        self.state = state


class FlowTimeout(AccodaError, TimeoutError):
    """The flow did not end in time. It goes on; ask again, or cancel it."""

    def __init__(self, id: str, timeout: float) -> None:
        super().__init__(f"flow {id!r} is still running after {timeout:g} s")
        self.id = id


class ResultTimeout(AccodaError, TimeoutError):
    """The job did not finish in time. It is still stored; ask again, or cancel it."""

    def __init__(self, id: int, timeout: float, state: str) -> None:
        super().__init__(f"job {id} is still {state} after {timeout:g} s")
        self.id = id


class TokensTimeout(AccodaError, TimeoutError):
    """The budget could not pay in time. Nothing was spent; wait longer, or do without the call."""

    def __init__(self, budget: str, cost: int, timeout: float) -> None:
        super().__init__(f"budget {budget!r} could not pay {cost} within {timeout:g} s")
        self.budget = budget
        self.cost = cost


class HandlerTimeout(AccodaError, TimeoutError):
    """The run took longer than its handler's `timeout`, and was stopped."""


class HandlerLost(AccodaError):
    """The run was stopped from outside; its outcome does not count."""


class LeaseLost(HandlerLost):
    """The job was cancelled, replaced, or given to another worker while this run went on."""


class WorkerStopped(HandlerLost):
    """The worker had to leave before the run was over; the job goes back at once."""


class ProcessDied(AccodaError):
    """A child process ended in the middle of its work."""


class CannotStart(ProcessDied):
    """A child process could not load the handler: the worker's problem, so the job goes back and has not tried."""


class RemoteError(AccodaError):
    """An error that a handler raised in a child process. The object itself stayed there; this is what is known of it.

    `kind` is the dotted name of its class and `kinds` those of all its base classes too, `text` is what it said. The
    class that a retry rule sees has the same name, and is also a `ValueError`, `OSError` or the like if the error was.
    """

    kind = ""
    kinds: tuple[str, ...] = ()
    text = ""

    def __str__(self) -> str:
        return self.text


class RetryLater(AccodaError):
    """Raise it in a handler: the job goes back, after `delay` seconds (or a timedelta), or at the moment `at`.

    Without either, the queue's retry rule says when. A limit of attempts still holds. With `priority` (a `Priority`)
    the job has that priority from then on. `raise RetryLater(delay=30) from error` counts as that error.
    """

    reason: str = ""

    def __init__(
        self,
        reason: str = "",
        *,
        delay: float | timedelta | None = None,
        at: datetime | int | None = None,
        priority: int | str | None = None,
    ) -> None:
        super().__init__(reason or "asked to run later")
        if delay is not None and at is not None:
            raise InvalidInput("at", "give either delay or at, not both")
        self.reason = reason
        self.delay = delay
        self.at = at
        self.priority = priority


class RateLimited(RetryLater):
    """Raise it in a handler when the API said "too many requests", and when to come again.

    The budgets of its queue (or `budget` alone) give nothing until then: after `retry_after` seconds (or a timedelta),
    or at the moment `at`. The job goes back until then as well. No limit of attempts buries it, and it has spent
    nothing unless it says so.
    """

    def __init__(
        self,
        retry_after: float | timedelta | None = None,
        *,
        at: datetime | int | None = None,
        budget: str | None = None,
        reason: str = "",
    ) -> None:
        if retry_after is None and at is None:
            raise InvalidInput("retry_after", "say when to try again: seconds, or a moment with at=…")
        super().__init__(reason or "the API has had enough", delay=retry_after, at=at)
        self.budget = budget


class BuryJob(AccodaError):
    """Raise it in a handler: the job goes to the dead letters at once, with the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SettingsError(AccodaError):
    """A setting, or its file, cannot be used. `problems` has a line for each, which begins with its source."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class ContractError(AccodaError, ValueError):
    """A contract, or a record of one, cannot be used. `problems` has one for each mistake, in the order of the file."""

    def __init__(self, problems: Sequence[object]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class CannotListen(AccodaError):
    """The port for metrics cannot be opened. Carries `host` and `port`."""

    def __init__(self, host: str, port: int, problem: str) -> None:
        super().__init__(f"metrics: cannot listen on port {port} of {host}: {problem}")
        self.host = host
        self.port = port


class VersionConflict(AccodaError):
    """The document is not at the version that the writer expected. Read it again, then decide anew."""

    def __init__(self, name: str, expected: int, found: int) -> None:
        state = f"is at version {found}" if found else "does not exist"
        super().__init__(f"document {name!r}: expected version {expected}, but it {state}; read it again and retry")
        self.name = name
        self.expected = expected
        self.found = found


class StorageError(AccodaError):
    """The store is the trouble. Nothing that was acknowledged is affected."""


class MissingDriver(StorageError):
    """The URL asks for a storage whose driver is an extra that is not installed."""


class StorageUnavailable(StorageError):
    """The store did not answer. The call may be repeated.

    `unsure`: it had been sent, and its answer was lost: whether it was carried out is not known.
    """

    def __init__(self, message: str = "", *, unsure: bool = False) -> None:
        super().__init__(message)
        self.unsure = unsure


class StorageClosed(StorageError):
    """The storage object was closed, or belongs to the parent of this forked process."""


class StorageFull(StorageError):
    """No space left on the device. The call changed nothing."""


class StorageReadOnly(StorageError):
    """The store may be read but not written, and a queue writes even when it reads."""


class NotADatabase(StorageError):
    """The file is not an Accoda store: another format, another program's, or damaged."""


class SchemaMismatch(StorageError):
    """The store's layout is not the one that this version of Accoda knows."""
