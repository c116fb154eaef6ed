"""Decides how many processors each queue gets, over all workers: `docs/manager.md`."""

from accoda.runtime.manager.board import WorkerView
from accoda.runtime.manager.manager import Manager, ManagerOptions
from accoda.runtime.manager.rule import Assignment, Plan, QueueView, Rule, Situation, assign, left_to_others, limits

__all__ = [
    "Assignment",
    "Manager",
    "ManagerOptions",
    "Plan",
    "QueueView",
    "Rule",
    "Situation",
    "WorkerView",
    "assign",
    "left_to_others",
    "limits",
]
