"""Accoda: a job queue that knows who waits for a job, what it costs and by when it is wanted.

A name is imported when it is first asked for: a program that uses the records alone loads no runtime, and the command
line starts within a second. `_WHERE` says where each name is; type checkers and editors read the imports beneath it.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.app_testing import JobRun, Trial, WaitingJob
    from accoda.budget import Budget, BudgetView, Observation
    from accoda.budget.usage import Usage
    from accoda.clock import Clock, ManualClock, SystemClock
    from accoda.demand import Answer, Demand, Prefetch, Waiter, Weights
    from accoda.enqueue import Draft, EnqueueMiddleware, EnqueueOptions, FollowUpOptions
    from accoda.errors import (
        AccodaError,
        BuryJob,
        CannotListen,
        CannotStart,
        Conflict,
        ContractError,
        FlowEnded,
        FlowTimeout,
        HandlerLost,
        HandlerTimeout,
        InvalidInput,
        JobCancelled,
        JobFailed,
        JobNotFound,
        KeyReused,
        LeaseLost,
        MissingDriver,
        NotADatabase,
        NotFound,
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
        TokensTimeout,
        TooLarge,
        VersionConflict,
        WorkerStopped,
    )
    from accoda.flows.batch import FlowBatch
    from accoda.flows.builder import Flow, RunningFlow
    from accoda.flows.chains import Chain, Group, JobCall, chain, chord, group
    from accoda.flows.flows import Flows
    from accoda.flows.members import Parents
    from accoda.flows.model import (
        FlowInfo,
        FlowState,
        FlowSummary,
        NodeInfo,
        NodeState,
        When,
    )
    from accoda.flows.nodes import AddedNodeOptions, NewNodeOptions, Node, NodeOptions
    from accoda.limits import set_limits
    from accoda.model import (
        Bury,
        ById,
        ByKey,
        Cancel,
        Change,
        Cursor,
        Document,
        Done,
        Enqueued,
        Head,
        Job,
        JobInfo,
        LaneInfo,
        Lanes,
        LanesInfo,
        Lease,
        Look,
        NewJob,
        NotCrashed,
        Order,
        Outcome,
        QueueStats,
        Refused,
        Remove,
        Report,
        Rerank,
        Retry,
        Revive,
        StartNow,
        State,
        Stats,
        SyncEnqueued,
        Target,
    )
    from accoda.priority import Policy, Priority, aging, policy, strict
    from accoda.retry import Exponential, Fixed, RetryRule
    from accoda.runtime.batch import Batch, Running
    from accoda.runtime.envelope_outcome import DeadJob
    from accoda.runtime.events import BatchReport, HandlerStats, Monitor
    from accoda.runtime.handler import Handler
    from accoda.runtime.middleware import Around, Middleware
    from accoda.runtime.results import Progress
    from accoda.runtime.worker import Worker, WorkerOptions
    from accoda.storage.open import migrate, open_storage
    from accoda.storage.protocol import Inspector, Storage, Store

# Without this, a program that configures no logging would get our warnings from Python's handler of last resort.
logging.getLogger("accoda").addHandler(logging.NullHandler())

__all__ = [
    "AccodaError",
    "AddedNodeOptions",
    "Answer",
    "App",
    "Around",
    "Batch",
    "BatchReport",
    "Budget",
    "BudgetView",
    "Bury",
    "BuryJob",
    "ById",
    "ByKey",
    "Cancel",
    "CannotListen",
    "CannotStart",
    "Chain",
    "Change",
    "Clock",
    "Conflict",
    "ContractError",
    "Cursor",
    "DeadJob",
    "Demand",
    "Document",
    "Done",
    "Draft",
    "EnqueueMiddleware",
    "EnqueueOptions",
    "Enqueued",
    "Exponential",
    "Fixed",
    "Flow",
    "FlowBatch",
    "FlowEnded",
    "FlowInfo",
    "FlowState",
    "FlowSummary",
    "FlowTimeout",
    "Flows",
    "FollowUpOptions",
    "Group",
    "Handler",
    "HandlerLost",
    "HandlerStats",
    "HandlerTimeout",
    "Head",
    "Inspector",
    "InvalidInput",
    "Job",
    "JobCall",
    "JobCancelled",
    "JobFailed",
    "JobInfo",
    "JobNotFound",
    "JobRun",
    "KeyReused",
    "LaneInfo",
    "Lanes",
    "LanesInfo",
    "Lease",
    "LeaseLost",
    "Look",
    "ManualClock",
    "Middleware",
    "MissingDriver",
    "Monitor",
    "NewJob",
    "NewNodeOptions",
    "Node",
    "NodeInfo",
    "NodeOptions",
    "NodeState",
    "NotADatabase",
    "NotCrashed",
    "NotFound",
    "Observation",
    "Order",
    "Outcome",
    "Parents",
    "Policy",
    "Prefetch",
    "Priority",
    "ProcessDied",
    "Progress",
    "QueueStats",
    "RateLimited",
    "Refused",
    "RemoteError",
    "Remove",
    "Report",
    "Rerank",
    "ResultTimeout",
    "Retry",
    "RetryLater",
    "RetryRule",
    "Revive",
    "Running",
    "RunningFlow",
    "SchemaMismatch",
    "SettingsError",
    "StartNow",
    "State",
    "Stats",
    "Storage",
    "StorageClosed",
    "StorageError",
    "StorageFull",
    "StorageReadOnly",
    "StorageUnavailable",
    "Store",
    "SyncEnqueued",
    "SystemClock",
    "Target",
    "TokensTimeout",
    "TooLarge",
    "Trial",
    "Usage",
    "VersionConflict",
    "Waiter",
    "WaitingJob",
    "Weights",
    "When",
    "Worker",
    "WorkerOptions",
    "WorkerStopped",
    "aging",
    "chain",
    "chord",
    "group",
    "migrate",
    "open_storage",
    "policy",
    "set_limits",
    "strict",
]

_WHERE = {
    name: module
    for module, names in {
        "accoda.app": "App",
        "accoda.app_testing": "JobRun Trial WaitingJob",
        "accoda.budget": "Budget BudgetView Observation",
        "accoda.clock": "Clock ManualClock SystemClock",
        "accoda.demand": "Answer Demand Prefetch Waiter Weights",
        "accoda.enqueue": "Draft EnqueueMiddleware EnqueueOptions FollowUpOptions",
        "accoda.errors": (
            "AccodaError BuryJob CannotListen CannotStart Conflict ContractError FlowEnded FlowTimeout "
            "HandlerLost HandlerTimeout "
            "InvalidInput JobCancelled JobFailed JobNotFound KeyReused LeaseLost MissingDriver NotADatabase NotFound "
            "ProcessDied RateLimited RemoteError ResultTimeout RetryLater SchemaMismatch SettingsError "
            "StorageClosed StorageError StorageFull StorageReadOnly StorageUnavailable TokensTimeout TooLarge "
            "VersionConflict WorkerStopped"
        ),
        "accoda.flows.batch": "FlowBatch",
        "accoda.flows.builder": "Flow RunningFlow",
        "accoda.flows.chains": "Chain Group JobCall chain chord group",
        "accoda.flows.nodes": "AddedNodeOptions NewNodeOptions Node NodeOptions",
        "accoda.flows.flows": "Flows",
        "accoda.flows.members": "Parents",
        "accoda.flows.model": "FlowInfo FlowState FlowSummary NodeInfo NodeState When",
        "accoda.limits": "set_limits",
        "accoda.model": (
            "Bury ById ByKey Cancel Change Cursor Document Done Enqueued Head Job JobInfo LaneInfo Lanes LanesInfo "
            "Lease Look NewJob NotCrashed Order Outcome QueueStats Refused Remove Report Rerank Retry Revive StartNow "
            "State Stats SyncEnqueued Target"
        ),
        "accoda.priority": "Policy Priority aging policy strict",
        "accoda.retry": "Exponential Fixed RetryRule",
        "accoda.runtime.batch": "Batch Running",
        "accoda.runtime.envelope_outcome": "DeadJob",
        "accoda.runtime.events": "BatchReport HandlerStats Monitor",
        "accoda.runtime.handler": "Handler",
        "accoda.runtime.middleware": "Around Middleware",
        "accoda.runtime.results": "Progress",
        "accoda.budget.usage": "Usage",
        "accoda.runtime.worker": "Worker WorkerOptions",
        "accoda.storage.open": "migrate open_storage",
        "accoda.storage.protocol": "Inspector Storage Store",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'accoda' has no attribute {name!r}")
    # Kept, so that the next look finds it without coming here. Two threads that look at once find the same object.
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
