"""Why a job is not running, and when it will: a look at what there is (`gather`), and what follows from it (`explain`).

A waiting job has gates before it. Each is open, shut, or only worth a note; the first that is shut is the answer.
"""

from accoda.operations.why.explain import explain, why
from accoda.operations.why.records import Estimate, Explanation, Gate, Start, Verdict
from accoda.operations.why.snapshot import Snapshot, gather

__all__ = ["Estimate", "Explanation", "Gate", "Snapshot", "Start", "Verdict", "explain", "gather", "why"]
