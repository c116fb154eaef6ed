"""Part `cluster`: one queue, partitioned, on a Redis Cluster of one, two and three masters.

The masters share the cores of this machine with the clients, so the rates say little of how a Cluster grows. What the
model needs is the processor time of a job, on the clients and on each master.
"""

from __future__ import annotations

import time
from typing import Any, Self

from proof.servers.process import free_port, wait_until
from proof.servers.redis import RedisServer, Servers

from accoda.storage.redis.keys import slot_of
from benchmarks.scale.load import Order, load
from benchmarks.scale.places import Place
from benchmarks.scale.record import Progress
from benchmarks.scale.sizes import Sizes
from benchmarks.scale.usage import processor_seconds
from benchmarks.scale.workers import drained

SLOTS = 16384
QUEUE = "jobs"
PARTITIONS = 6
"""As many for each number of masters, so that only this number differs."""
PROCESSES = 2
BATCH = 500
"""Of enqueues: each call goes to one partition, in turn."""


def borders(masters: int) -> list[int]:
    """Where the slots of each master begin, and the end: so that each has as many of the queue's partitions.

    Equal ranges would not do it: the tags of few partitions differ in one digit, and their slots lie in steps of 4,129.
    """
    slots = sorted(slot_of(f"{QUEUE}/{partition}") for partition in range(PARTITIONS))
    return [0, *(slots[PARTITIONS * number // masters] for number in range(1, masters)), SLOTS]


class Masters(Servers):
    """So many masters with as many partitions of the queue each, and no replicas."""

    def __init__(self, count: int) -> None:
        super().__init__()
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
        self.all = [RedisServer("everysec", *options, "--cluster-port", str(free_port())) for _ in range(count)]

    def start(self) -> Self:
        first, ends = self.all[0], borders(len(self.all))
        for number, server in enumerate(self.all):
            server.start()
            server.ask("CLUSTER", "ADDSLOTSRANGE", ends[number], ends[number + 1] - 1)
            server.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in self.all[1:]:
            bus = server.command()[server.command().index("--cluster-port") + 1]
            first.ask("CLUSTER", "MEET", "127.0.0.1", server.port, bus)
        wait_until(self._in_order, lambda: "the Cluster did not come up")
        return self

    def _in_order(self) -> bool:
        states = [server.ask("CLUSTER", "INFO") for server in self.all]
        return all("cluster_state:ok" in state and f"cluster_known_nodes:{len(self.all)}" in state for state in states)


class ClusterPlace(Place):
    name = "redis"
    about = f"Redis Cluster, {PARTITIONS} partitions, appendfsync everysec"
    in_memory = True

    def __init__(self, masters: int) -> None:
        self.masters = Masters(masters)

    def __enter__(self) -> Self:
        self.masters.__enter__()
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.masters.all)
        self.url = f"redis+cluster://{hosts}?partitions={PARTITIONS}"
        return self

    def __exit__(self, *error: object) -> None:
        self.masters.close()

    def servers(self) -> list[int]:
        return [server.pid for server in self.masters.all]


def measure(masters: int, count: int) -> dict[str, Any]:
    with ClusterPlace(masters) as place:
        before = [processor_seconds([pid]) for pid in place.servers()]
        loaded = load(Order(place.url, QUEUE, count, batch=BATCH), PROCESSES)
        filled = [processor_seconds([pid]) for pid in place.servers()]
        _empty(place)
        found = drained(place, QUEUE, PROCESSES, count, BATCH)
    return {
        "masters": masters,
        "enqueue_rate": loaded.rate,
        "enqueue_client": loaded.client,
        "enqueue_nodes": [(b - a) / count for a, b in zip(before, filled, strict=True)],
        "drain_rate": found.rate,
        "drain_client": found.client,
        "drain_server": found.server,
        "drain_nodes": found.nodes,
    }


def _empty(place: ClusterPlace) -> None:
    """What was enqueued is not run: it goes, and the masters are quiet again."""
    for server in place.masters.all:
        server.ask("FLUSHALL")
    time.sleep(0.2)


def run(storages: list[str], sizes: Sizes, progress: Progress) -> dict[str, Any]:
    result: dict[str, Any] = {"partitions": PARTITIONS, "processes": PROCESSES, "batch": BATCH, "points": []}
    for masters in sizes.masters if "redis" in storages else ():
        result["points"].append(measure(masters, sizes.cluster_jobs))
        point = result["points"][-1]
        progress.tell(f"{masters} masters: {point['drain_rate']:,.0f} drained, {point['enqueue_rate']:,.0f} enqueued")
    return result
