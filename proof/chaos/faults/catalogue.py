"""Which faults can strike which target."""

from __future__ import annotations

from proof.chaos.faults.disk import disk_faults
from proof.chaos.faults.failover import FailOver, ReplicaKill
from proof.chaos.faults.model import Fault, Target
from proof.chaos.faults.network import network_faults
from proof.chaos.faults.server import ServerKill, ServerRestart


def catalogue(target: Target) -> list[Fault]:
    """All faults for this target; those that need a handle which it lacks are left out."""
    faults: list[Fault] = []
    if target.server is not None:
        faults += [ServerKill(target), ServerRestart(target)]
    if target.group is not None:
        faults += [FailOver(target), ReplicaKill(target)]
    if target.proxy is not None:
        faults += network_faults(target)
    if target.disk is not None:
        faults += disk_faults(target)
    return faults
