"""The model beside what was measured: costs from one part of scale.json, rates from the others and from bench.json.

The costs of the bare calls come from the part `costs`; what a worker and a Cluster cost for a job from the smallest
crew and the smallest Cluster, as processor time, and what a second process adds to it; what a long line costs the
server of Redis from its load. Rates are never put in, only compared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.scale.load import BATCH, LOADERS
from benchmarks.scale.model import Check, Costs, Crew, Operation, crew_rate, crowded, fit, serial_rate
from benchmarks.scale.record import Record
from benchmarks.scale.sizes import STORAGES

ONE_WRITER = ("sqlite", "redis")
SYNCED = ("sqlite", "postgres")
BENCH_WAITING = 1000


def operation(points: list[dict[str, float]]) -> Operation:
    def line(*names: str) -> Any:
        return fit({point["batch"]: sum(point[name] for name in names) for point in points})

    waits = {point["batch"]: point["wall"] - point["client"] - point["server"] for point in points}
    return Operation(line("client"), line("server"), fit(waits), line("wire"), line("disk"))


def costs_of(record: Record, storage: str) -> Costs | None:
    """Of a storage that was measured, else None."""
    found = record.get("costs")
    if storage not in found:
        return None
    run = operation(found[storage]["run"])
    crew = record.get("workers")
    extra = 0.0
    if storage in crew:
        extra = max(0.0, crew[storage]["points"][0]["client"] - run.client.each(crew["batch"]))
    many = record.get("many")
    return Costs(
        name=storage,
        enqueue=operation(found[storage]["enqueue"]),
        run=run,
        extra=extra,
        bytes=many[storage]["bytes"] if storage in many else found[storage]["bytes"],
        payload=found["payload"],
        sync=found["sync_seconds"],
        one_writer=storage in ONE_WRITER,
        synced=storage in SYNCED,
        in_memory=storage == "redis",
    )


def checks(record: Record, bench: Path) -> list[Check]:
    """All points that can be compared."""
    found = []
    for storage in STORAGES:
        costs = costs_of(record, storage)
        if costs is not None:
            found += [*_batches(costs, bench), *_loads(record, costs), *_crews(record, costs)]
    return [*found, *_clusters(record)]


def _batches(costs: Costs, bench: Path) -> list[Check]:
    """One client, one call at a time, at each batch size: by `make bench`, another run of other code."""
    if not bench.exists():
        return []
    rates = [
        rate
        for rate in json.loads(bench.read_text())["rates"]
        if rate["storage"] == costs.name and rate["waiting"] == BENCH_WAITING
    ]
    seen: set[tuple[str, int]] = set()
    found = []
    for what, each in (("enqueue", costs.enqueue), ("fused", costs.run)):
        for rate in rates:
            if rate["what"] == what and (what, rate["batch"]) not in seen:
                seen.add((what, rate["batch"]))
                words = f"{'enqueue' if what == 'enqueue' else 'take + settle'}, batches of {rate['batch']:,}"
                found.append(Check(words, costs.name, serial_rate(each, rate["batch"]), rate["accoda"]))
    return found


def _loads(record: Record, costs: Costs) -> list[Check]:
    """The load of millions, by several processes, in batches ten times as large as any that the costs are from."""
    many = record.get("many")
    if costs.name not in many:
        return []
    loaders = LOADERS[costs.name]
    cores = _cores(record)
    crew = Crew(loaders, 1, BATCH, cores, 1 if costs.one_writer else cores)
    put, found = costs.enqueue, many[costs.name]
    # Where the store is one process, what it used is known: a long line costs more to add to than a short one.
    server = found.get("load_server") or put.server.each(BATCH)
    rate = crew_rate(crew, put.client.each(BATCH), server, put.wait.each(BATCH))
    return [Check(f"load of {many['jobs']:,}", costs.name, rate, found["load_rate"])]


def _crews(record: Record, costs: Costs) -> list[Check]:
    part = record.get("workers")
    if costs.name not in part:
        return []
    points, batch, cores = part[costs.name]["points"], part["batch"], _cores(record)
    first = points[0]
    second = next((point for point in points if point["processes"] == 2), first)
    wait, inside = costs.run.wait.each(batch), costs.name == "sqlite"
    found = []
    for point in points:
        crew = Crew(point["processes"], part["processors"], batch, cores, 1 if costs.one_writer else cores, inside)
        at_once = min(crew.processes, cores)
        client, server = (crowded(first[name], second[name], at_once) for name in ("client", "server"))
        rate = crew_rate(crew, client, server, wait)
        words = f"{point['processes']} worker process{'es' if point['processes'] > 1 else ''}"
        found.append(Check(words, costs.name, rate, point["rate"]))
    return found


def _clusters(record: Record) -> list[Check]:
    part = record.get("cluster")
    found: list[Check] = []
    if not part.get("points"):
        return found
    first, cores, workers = part["points"][0], _cores(record), record.get("workers")
    single, batch = costs_of(record, "redis"), workers.get("batch", 100)
    waits = (single.enqueue.wait.each(part["batch"]), single.run.wait.each(batch)) if single else (0.0, 0.0)
    for point in part["points"]:
        masters, processes = point["masters"], part["processes"]
        words = f"{masters} master{'s' if masters > 1 else ''}"
        put = Crew(processes, 1, part["batch"], cores, masters)
        rate = crew_rate(put, first["enqueue_client"], sum(first["enqueue_nodes"]), waits[0])
        found.append(Check(f"{words}: enqueue", "redis cluster", rate, point["enqueue_rate"]))
        run = Crew(processes, workers.get("processors", 4), batch, cores, masters)
        rate = crew_rate(run, first["drain_client"], first["drain_server"], waits[1])
        found.append(Check(f"{words}: drain", "redis cluster", rate, point["drain_rate"]))
    return found


def _cores(record: Record) -> int:
    return int(record.get("costs").get("cores", 2))
