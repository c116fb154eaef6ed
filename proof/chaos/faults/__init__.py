"""Faults of servers, networks and disks: `catalogue(target)` lists those that can strike a target.

async with open_target("postgres", note) as target:
    for fault in catalogue(target):
        await fault.strike(rng)
"""

from proof.chaos.faults.catalogue import catalogue
from proof.chaos.faults.model import KINDS, Fault, Note, Target
from proof.chaos.faults.targets import open_target

__all__ = ["KINDS", "Fault", "Note", "Target", "catalogue", "open_target"]
