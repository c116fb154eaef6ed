"""Why a job is not running, and when it will: a look at what there is (`gather`), and what follows from it (`explain`).

A job that waits has gates before it. Each is open, shut, or only worth a note; the first that is shut is the answer.
"""

from accoda.why.explain import explain
from accoda.why.model import Estimate, Gate, Verdict, Why
from accoda.why.pauses import PauseNote
from accoda.why.snapshot import Snapshot, gather

__all__ = ["Estimate", "Gate", "PauseNote", "Snapshot", "Verdict", "Why", "explain", "gather"]
