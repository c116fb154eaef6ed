"""Accoda: a job queue that knows who waits for a job, what it costs and by when it is wanted."""

import logging

from accoda.app import App
from accoda.budget import Budget, BudgetView, Observation
from accoda.clock import Clock, ManualClock, SystemClock
from accoda.demand import Answer, Demand, Prefetch, Waiter, Weights
from accoda.enqueue import EnqueueOptions
from accoda.errors import (
    AccodaError,
    BuryJob,
    CannotListen,
    CannotStart,
    ContractError,
    HandlerLost,
    HandlerTimeout,
    InvalidInput,
    JobFailed,
    JobNotFound,
    LeaseLost,
    MissingDriver,
    NotADatabase,
    ProcessDied,
    RateLimited,
    RemoteError,
    ResultTimeout,
    RetryLater,
    SchemaMismatch,
    SettingsError,
    StorageClosed,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
    TooLarge,
    VersionConflict,
    WorkerStopped,
)
from accoda.limits import set_limits
from accoda.model import (
    Bury,
    Document,
    Done,
    Enqueued,
    Job,
    JobInfo,
    Lease,
    NewJob,
    Outcome,
    Peek,
    QueueStats,
    Rank,
    Refused,
    Retry,
    State,
    Stats,
)
from accoda.priority import Policy, Priority, aging, policy, strict
from accoda.retry import Exponential, Fixed, RetryRule
from accoda.runtime.batch import Batch, Running
from accoda.runtime.events import BatchReport, HandlerStats, Monitor
from accoda.runtime.handler import Handler
from accoda.runtime.middleware import Middleware
from accoda.runtime.results import Progress
from accoda.runtime.usage import Usage
from accoda.runtime.worker import Worker, WorkerOptions
from accoda.storage.open import migrate, open_storage
from accoda.storage.protocol import Inspector, Storage, Store

# Whoever configures no logging is not shouted at by Python's handler of last resort.
logging.getLogger("accoda").addHandler(logging.NullHandler())

__all__ = [
    "AccodaError",
    "Answer",
    "App",
    "Batch",
    "BatchReport",
    "Budget",
    "BudgetView",
    "Bury",
    "BuryJob",
    "CannotListen",
    "CannotStart",
    "Clock",
    "ContractError",
    "Demand",
    "Document",
    "Done",
    "EnqueueOptions",
    "Enqueued",
    "Exponential",
    "Fixed",
    "Handler",
    "HandlerLost",
    "HandlerStats",
    "HandlerTimeout",
    "Inspector",
    "InvalidInput",
    "Job",
    "JobFailed",
    "JobInfo",
    "JobNotFound",
    "Lease",
    "LeaseLost",
    "ManualClock",
    "Middleware",
    "MissingDriver",
    "Monitor",
    "NewJob",
    "NotADatabase",
    "Observation",
    "Outcome",
    "Peek",
    "Policy",
    "Prefetch",
    "Priority",
    "ProcessDied",
    "Progress",
    "QueueStats",
    "Rank",
    "RateLimited",
    "Refused",
    "RemoteError",
    "ResultTimeout",
    "Retry",
    "RetryLater",
    "RetryRule",
    "Running",
    "SchemaMismatch",
    "SettingsError",
    "State",
    "Stats",
    "Storage",
    "StorageClosed",
    "StorageError",
    "StorageFull",
    "StorageReadOnly",
    "StorageUnavailable",
    "Store",
    "SystemClock",
    "TooLarge",
    "Usage",
    "VersionConflict",
    "Waiter",
    "Weights",
    "Worker",
    "WorkerOptions",
    "WorkerStopped",
    "aging",
    "migrate",
    "open_storage",
    "policy",
    "set_limits",
    "strict",
]
