"""Which faults can strike which target."""

from __future__ import annotations

from chaos.faults.disk import disk_faults
from chaos.faults.failover import FailOver, ReplicaKill
from chaos.faults.model import Fault, Target
from chaos.faults.network import network_faults
from chaos.faults.server import ServerKill, ServerRestart


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
