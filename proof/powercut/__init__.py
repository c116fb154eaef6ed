"""Cuts the power of a SQLite store at thousands of moments and looks at what is left: see docs/power-cuts.md.

python -m proof.powercut                          2,000 cuts in each mode
python -m proof.powercut --mode default --seed 7  one life again, exactly
python -m proof.powercut growth                   does the log stay short, does the file?
"""

from proof.powercut.disk import Disk, Fuse, Operation, SyncFailed
from proof.powercut.life import MODES, MUTANTS, Findings, Plan
from proof.powercut.machine import Machine, machine
from proof.powercut.run import replay, run_cuts
from proof.powercut.vfs import PowerVFS, installed

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
