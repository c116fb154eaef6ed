"""Runs of a job that failed, as far as they were noted: `accoda.runtime.attempts` says which are."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from msgspec import Struct

from accoda.admin.moments import shown
from accoda.envelope import without_secrets
from accoda.errors import InvalidInput, JobNotFound
from accoda.runtime.attempts import Attempt, Ended, read_attempts
from accoda.shown.secrets import seen_of

if TYPE_CHECKING:
    from accoda.app import App


class RunView(Struct, rename="camel", frozen=True, kw_only=True):
    """A run that failed. `attempt` is 0 for the first; `outcome` says whether the job was to be tried again (`retry`)
    or given up (`bury`); `ran_for` is in seconds. `traceback` is its end, where it was long."""

    attempt: int
    worker: str
    started_at: str
    ended_at: str
    ran_for: float
    outcome: Ended
    error: str
    traceback: str = ""

    @classmethod
    def of(cls, attempt: Attempt, secrets: tuple[str, ...]) -> RunView:
        return cls(
            attempt=attempt.attempt,
            worker=attempt.worker,
            started_at=shown(attempt.started_at) or "",
            ended_at=shown(attempt.ended_at) or "",
            ran_for=max(0, attempt.ended_at - attempt.started_at) / 1000,
            outcome=attempt.outcome,
            error=without_secrets(attempt.error, secrets),
            traceback=without_secrets(attempt.traceback, secrets),
        )


async def list(app: App, id: int) -> builtins.list[RunView]:
    """The last failed runs of a job, the oldest first; none where none failed, or nobody noted it.

    They are kept for three days, also when the job is gone; then what is secret is what was known when they were noted.
    """
    if type(id) is not int or not 0 <= id < 1 << 63:
        raise InvalidInput("id", f"must be the number of a job, not {id!r:.60}")
    store = await app.connections.get()
    job = await store.find(id)
    found = await read_attempts(store, id)
    if job is None and not found:
        raise JobNotFound(id)
    # Hidden when they were noted, and once more: this app may know of secrets that the worker did not.
    secrets = () if job is None else seen_of(app, job).secrets
    return [RunView.of(attempt, secrets) for attempt in found]
