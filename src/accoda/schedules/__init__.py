"""Schedules: jobs that are made by cron or at intervals. See `docs/schedules.md`.

A schedule is itself a job of the system queue `accoda.schedules`; `Scheduler` does its ticks.
"""

from accoda.schedules.declare import ScheduledOptions, declare, store_declared
from accoda.schedules.files import Changes, apply, read_toml
from accoda.schedules.model import QUEUE, Schedule, ScheduleView, in_words, upcoming
from accoda.schedules.scheduler import Scheduler
from accoda.schedules.spec import MakeJob, maker_of
from accoda.schedules.store import create, delete, get, list_all, pause, put, resume, trigger

__all__ = [
    "QUEUE",
    "Changes",
    "MakeJob",
    "Schedule",
    "ScheduleView",
    "ScheduledOptions",
    "Scheduler",
    "apply",
    "create",
    "declare",
    "delete",
    "get",
    "in_words",
    "list_all",
    "maker_of",
    "pause",
    "put",
    "read_toml",
    "resume",
    "store_declared",
    "trigger",
    "upcoming",
]
