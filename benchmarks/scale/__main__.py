"""`python -m benchmarks.scale [PART ...] [--quick] [--jobs N]`: how Accoda grows, and a model of what lies beyond.

Parts: many, queues, delayed, waiters, workers, cluster, costs; all unless told. Each replaces its own section of
benchmarks/results/scale.json. `python -m benchmarks.scale model` measures nothing: it prints the model from what is
stored there, for your own numbers (--jobs-per-day, --payload, …).
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proof.servers.process import ServerMissing, find_program

from benchmarks.report import RESULTS
from benchmarks.scale import output, tables
from benchmarks.scale.model import Node, Plan
from benchmarks.scale.record import Progress, Record
from benchmarks.scale.sizes import EXPECTED, PARTS, STORAGES, Sizes, full, quick
from benchmarks.scale.usage import free_memory

DISK_FOR_EACH = {"sqlite": 350, "redis": 700, "postgres": 900}
MEMORY_FOR_EACH = {"sqlite": 20, "redis": 420, "postgres": 40}
"""Bytes for each job while it is loaded and measured: files with their logs, a rewrite of the append-only file beside
the old one, a fork's copies of pages that change."""
SPARE = 1e9


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; or model")
    parser.add_argument("--quick", action="store_true", help="a hundredth, short samples; kept only with --results")
    parser.add_argument("--jobs", type=_whole, help="how many wait in the part many (10,000,000)")
    parser.add_argument("--storage", type=_storages, default=[*STORAGES], help="a comma between several")
    parser.add_argument("--results", type=Path, help="another folder than benchmarks/results, and no documents changed")
    model = parser.add_argument_group("the model")
    plan, node = Plan(), Node()
    model.add_argument("--jobs-per-day", type=float, default=plan.jobs_per_day)
    model.add_argument("--peak", type=float, default=plan.peak, help="times the average")
    model.add_argument("--payload", type=int, default=plan.payload, help="bytes")
    model.add_argument("--enqueue-batch", type=int, default=plan.enqueue_batch)
    model.add_argument("--batch", type=int, default=plan.batch, help="jobs of one take")
    model.add_argument("--use", type=float, default=plan.use, help="share of a processor that may be busy")
    model.add_argument("--cores", type=int, default=node.cores, help="of one node of the store")
    model.add_argument("--client-cores", type=int, default=node.client_cores, help="beside each node")
    model.add_argument("--memory", type=float, default=node.memory / 1e9, help="GB of one node")
    model.add_argument("--network", type=float, default=node.network * 8 / 1e9, help="Gbit/s of one node")
    model.add_argument("--disk", type=float, default=node.disk / 1e6, help="MB/s of one node")
    model.add_argument("--sessions", type=int, default=node.sessions, help="PostgreSQL: callers that share a sync")
    given = parser.parse_args(arguments)
    if unknown := [part for part in given.parts if part not in (*PARTS, "model")]:
        parser.error(f"there is no part {', '.join(unknown)}; choose from {', '.join(PARTS)}, model")
    wrong = [n for n in ("jobs_per_day", "peak", "enqueue_batch", "batch", "cores", "client_cores", "memory", "network",
                         "disk", "sessions", "use") if getattr(given, n) <= 0]  # fmt: skip
    if wrong or given.payload < 0 or given.use > 1:
        name = (wrong or ["payload" if given.payload < 0 else "use"])[0].replace("_", "-")
        parser.error(f"--{name}: must be above 0" + (" and at most 1" if name == "use" else ""))
    return given


def _whole(text: str) -> int:
    number = int(float(text.replace("_", "").replace(",", "")))
    if number < 1000:
        raise argparse.ArgumentTypeError(f"at least 1,000, not {text}")
    return number


def _storages(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(STORAGES):
        raise argparse.ArgumentTypeError(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(STORAGES)}")
    return names


def room_needed(jobs: int, storages: Sequence[str]) -> tuple[float, float]:
    """Bytes of disk and of memory: one storage is measured after the other, and gone before the next."""
    disk = max(DISK_FOR_EACH[name] for name in storages) * jobs + SPARE
    return disk, max(MEMORY_FOR_EACH[name] for name in storages) * jobs + SPARE


def refusal(jobs: int, storages: Sequence[str], disk: float, memory: float) -> str | None:
    """Why it cannot be done with so much room, if so."""
    need_disk, need_memory = room_needed(jobs, storages)
    for what, need, there in (("disk", need_disk, disk), ("memory", need_memory, memory)):
        if there < need:
            return (
                f"{jobs:,} jobs need {need / 1e9:.1f} GB of {what}, and there are {there / 1e9:.1f} GB free. "
                f"Choose fewer (--jobs), or other storages (--storage)"
                + (", or set TMPDIR." if what == "disk" else ".")
            )
    return None


def available(storages: Sequence[str]) -> list[str]:
    """Those whose servers are installed; the others are told of."""
    from proof.servers.postgres import find_postgres

    found = []
    for name in storages:
        try:
            if name == "redis":
                find_program("redis-server")
            elif name == "postgres":
                find_postgres("postgres")
            found.append(name)
        except ServerMissing as missing:
            print(f"{name}: not measured: {missing}", file=sys.stderr)
    return found


def measure(parts: Sequence[str], storages: list[str], sizes: Sizes, record: Record, scale: float = 1.0) -> None:
    """Run each part, one storage after the other, and keep what was found before the next begins."""
    progress = Progress({part: EXPECTED[part] * scale for part in parts})
    for part in parts:
        progress.begin(part)
        module: Any = importlib.import_module(f"benchmarks.scale.{part}")
        for storage in storages if part != "cluster" else [name for name in storages if name == "redis"]:
            began = progress.seconds
            found = module.run([storage], sizes, progress)
            if storage in found:
                found[storage]["took_seconds"] = round(progress.seconds - began, 1)
            record.put(part, found)
        print(f"\n## {tables.PARTS[part][0]}\n\n" + "\n".join(tables.part(record, part)), flush=True)


def show_model(record: Record, plan: Plan, node: Node) -> None:
    parts = {
        "What a call costs": tables.model_costs(record),
        "Beside what was measured": tables.model_checks(tables.all_checks(record)),
        "What it needs": tables.model_needs(record, plan, node),
        "What so many nodes carry": tables.model_limits(record, plan, node),
    }
    if not any(parts.values()):
        raise SystemExit("nothing is measured yet: run `python -m benchmarks.scale costs workers` first")
    for title, lines in parts.items():
        if lines:
            print(f"\n## {title}\n\n" + "\n".join(lines))


def main(arguments: Sequence[str] | None = None) -> None:
    given = parse(arguments)
    plan = Plan(given.jobs_per_day, given.peak, given.payload, given.enqueue_batch, given.batch, given.use)
    node = Node(
        given.cores, given.client_cores, given.memory * 1e9, given.network * 1e9 / 8, given.disk * 1e6, given.sessions
    )
    parts = [part for part in given.parts or PARTS if part != "model"]
    folder = given.results or (None if given.quick and parts else RESULTS)
    record = Record.load(folder)
    if parts:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers and files go then, too
        sizes = quick(given.jobs) if given.quick else full(given.jobs)
        storages = available(given.storage)
        if "many" in parts:
            disk, memory = room_needed(sizes.jobs, storages)
            print(f"{sizes.jobs:,} jobs: up to {disk / 1e9:.1f} GB of disk in {tempfile.gettempdir()} and "
                  f"{memory / 1e9:.1f} GB of memory, given back at the end", file=sys.stderr)  # fmt: skip
            free = shutil.disk_usage(tempfile.gettempdir()).free
            if problem := refusal(sizes.jobs, storages, free, free_memory()):
                raise SystemExit(problem)
        measure(parts, storages, sizes, record, 0.15 if given.quick else 1.0)
        output.write(record, output.DOCS if folder == RESULTS else None)
    if not parts or {"costs", "workers"} & set(parts):
        show_model(record, plan, node)


if __name__ == "__main__":
    main()
