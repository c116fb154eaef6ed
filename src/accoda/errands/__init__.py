"""Work of the house that goes on step by step, as a job, wherever a worker or a service runs.

`keep_on` is the loop of a duty. `Errands` are those that people start and watch, such as replays and bulk changes: each
is a job under its id, whose data say how far it is; every step ends as `Done(then=[the next step])`, one atomic step,
so there is always exactly one. What has become of it stays in a document when it has ended.
"""

from accoda.errands.errands import LEASE, Errands, ErrandStatus, Step, Stepper
from accoda.errands.loop import keep_on, put_back

__all__ = ["LEASE", "ErrandStatus", "Errands", "Step", "Stepper", "keep_on", "put_back"]
