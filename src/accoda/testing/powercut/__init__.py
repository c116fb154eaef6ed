"""Cuts the power of a SQLite store at thousands of moments and looks at what is left: see docs/power-cuts.md.

python -m accoda.testing.powercut                          2,000 cuts in each mode
python -m accoda.testing.powercut --mode default --seed 7  one life again, exactly
python -m accoda.testing.powercut growth                   does the log stay short, does the file?
"""

from accoda.testing.powercut.disk import Disk, Fuse, Operation, SyncFailed
from accoda.testing.powercut.life import MODES, MUTANTS, Findings, Plan
from accoda.testing.powercut.machine import Machine, machine
from accoda.testing.powercut.run import replay, run_cuts
from accoda.testing.powercut.vfs import PowerVFS, installed

__all__ = [
    "MODES",
    "MUTANTS",
    "Disk",
    "Findings",
    "Fuse",
    "Machine",
    "Operation",
    "Plan",
    "PowerVFS",
    "SyncFailed",
    "installed",
    "machine",
    "replay",
    "run_cuts",
]
