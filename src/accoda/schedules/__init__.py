"""Schedules: jobs that come by cron or at intervals. See `docs/schedules.md`.

A schedule is itself a job, of the system queue `accoda.schedules`; `Scheduler` does its ticks.
"""

from accoda.schedules.declare import ScheduledDecorator, ScheduledOptions, declare, store_declared
from accoda.schedules.files import Changes, apply, read_toml
from accoda.schedules.jobs import MakeJob, maker_of
from accoda.schedules.model import QUEUE, AlreadyThere, Schedule, ScheduleView
from accoda.schedules.scheduler import Scheduler
from accoda.schedules.store import create, delete, get, list_all, pause, put, resume, set_enabled, trigger
from accoda.schedules.words import in_words, upcoming

__all__ = [
    "QUEUE",
    "AlreadyThere",
    "Changes",
    "MakeJob",
    "Schedule",
    "ScheduleView",
    "ScheduledDecorator",
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
    "set_enabled",
    "store_declared",
    "trigger",
    "upcoming",
]
