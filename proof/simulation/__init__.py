"""The whole queue in one thread, on a virtual clock, with faults from a seed: see docs/simulation.md.

    result = simulate(1234)
    assert result.ok, result.violations

The same seed gives the same run, step by step: `result.digest` says so.
"""

from proof.simulation.breaks import BREAKS
from proof.simulation.plan import FAULTS, Plan
from proof.simulation.run import Result, simulate

__all__ = ["BREAKS", "FAULTS", "Plan", "Result", "simulate"]
