"""Compares what a store holds after a cut with what the model holds: everything that can be seen."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw
from msgspec.structs import replace

from accoda.errors import VersionConflict
from accoda.model import REPORTS, STATES, ById, JobInfo, QueueStats
from accoda.testing.reference import Reference
from proof.powercut.lockstep import Handle
from proof.powercut.workload import QUEUES, StoreCall

_MANY = 100_000


def damage(path: Path) -> list[str]:
    """What SQLite itself finds wrong with the file."""
    connection = apsw.Connection(str(path))
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
    except apsw.Error as error:
        found = [f"integrity check: {error}"]
    finally:
        connection.close()
    return [] if found == ["ok"] else found


async def differences(handle: Handle, model: Reference) -> list[str]:
    """What the store says otherwise than the model, at the same moment."""
    pages = [(queue, state) for queue in QUEUES for state in STATES]
    flows = [job.id for job in model.jobs.values() if job.new.queue == REPORTS]
    # What is due is applied by the first, so that the others see it, whatever they apply by themselves.
    calls = [
        StoreCall("stats"),
        StoreCall("documents", ("",)),
        *(StoreCall("browse", page, {"limit": _MANY}) for page in pages),
        *(StoreCall("look", (ById(id),), {"waiters_after": 0}) for id in flows),
    ]
    answers = await handle.run(calls)
    for answer in answers:
        if isinstance(answer, BaseException):
            return [f"{type(answer).__name__}: {answer}"]
    stats, documents, *jobs = answers
    jobs, looks = jobs[: len(pages)], jobs[len(pages) :]
    told = _differ("statistics of", _plain(stats.queues), _plain(model.stats().queues))
    told += _differ("document", {d.name: d for d in documents}, {d.name: d for d in model.documents("")})
    for (queue, state), page in zip(pages, jobs, strict=True):
        ours = {job.id: _masked(job) for job in page}
        theirs = {job.id: _masked(job) for job in model.browse(queue, state)}
        told += _differ(f"{state} job of {queue}", ours, theirs)
        if not told and [*ours] != [*theirs]:
            told.append(f"{state} jobs of {queue} are in the order {[*ours]}, should be {[*theirs]}")
    reports = {id: look.waiters for id, look in zip(flows, looks, strict=True)}
    return told + _differ("reports to", reports, {id: tuple(model.jobs[id].waiters) for id in flows})


def _plain(stats: Mapping[str, QueueStats]) -> dict[str, QueueStats]:
    """A queue in which nothing was ever stored may be known or not."""
    return {name: each for name, each in stats.items() if each != QueueStats()}


def _masked(job: JobInfo) -> JobInfo:
    """Without what the protocol leaves open: which worker ran a job last, and an empty reason or none."""
    if job.state != "taken":
        job = replace(job, worker=None, taken_at=None)
    # A long payload would make a difference hard to read.
    return replace(job, reason=job.reason or None, data=job.data[:8] + b"%d" % zlib.crc32(job.data))


def same_answer(call: StoreCall, answer: object, expected: object) -> bool:
    """Whether the model would have answered so too. Statistics are compared by themselves."""
    if isinstance(answer, VersionConflict) and isinstance(expected, VersionConflict):
        return answer.found == expected.found
    return call.verb == "stats" or answer == expected


def _differ(what: str, found: Mapping[Any, object], expected: Mapping[Any, object]) -> list[str]:
    keys = [*expected, *(key for key in found if key not in expected)]
    return [
        f"{what} {key}: is {found.get(key)}, should be {expected.get(key)}"
        for key in keys
        if found.get(key) != expected.get(key)
    ]
