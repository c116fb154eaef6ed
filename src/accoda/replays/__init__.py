"""Replays that go on by themselves: the dead letters that fit a filter, so many a second, through crashes.

A replay is a job of `accoda.replays` with its id as the key. Each step brings what the step before it has planned, one
second's worth of ids, and is settled as `Done(then=[the next step])`: one atomic step, so there is always exactly one.
A step that is repeated after a crash revives the same ids, and those that were revived already are no longer dead.

What it has done so far stands in the job itself while it goes on, and in the document `replays/{id}` when it has ended.
`Replayer` does the steps; what people call is in `accoda.admin.replays`.
"""

from accoda.replays.replayer import Replayer
from accoda.replays.steps import QUEUE

__all__ = ["QUEUE", "Replayer"]
