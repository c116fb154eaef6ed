"""One action on all jobs that fit a filter, step by step, through crashes.

A bulk change is a job of `accoda.bulk` with its id as the key, whose data say what is wanted, what is to be done now
and what is done so far. Each step does what the step before it has planned, plans the next, and is settled as
`Done(then=[the next step])`. A plan names each job with its attempts, which grow whenever it comes back: so a step
that is repeated after a crash knows which of its jobs were dealt with already, and does nothing to them a second time.

What people call is in `accoda.admin.bulk`.
"""

from accoda.bulk.acting import Did
from accoda.bulk.bulker import Bulker
from accoda.bulk.steps import BULKS, QUEUE, Action, Bulk, action_states, where_of

__all__ = ["BULKS", "QUEUE", "Action", "Bulk", "Bulker", "Did", "action_states", "where_of"]
