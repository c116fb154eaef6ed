"""The tables of every part, made from scale.json alone. A part that was not run has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.report import table
from benchmarks.scale.check import checks, costs_of
from benchmarks.scale.model import Check, Node, Plan, errors, limits, needs
from benchmarks.scale.record import Record
from benchmarks.scale.sizes import STORAGES

NAMES = {"sqlite": "SQLite", "redis": "Redis", "postgres": "PostgreSQL", "redis cluster": "Redis Cluster"}
NODES = (1, 2, 3, 6, 12)


def of(found: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The storages that a part has."""
    return [(NAMES[name], found[name]) for name in STORAGES if name in found]


def many(found: dict[str, Any]) -> list[str]:
    few = f"{found['few']:,}"
    loads = [
        (
            name, f"{one['load_seconds']:.0f} s", f"{one['load_rate']:,.0f}", f"{one['load_last_to_first']:.0%}",
            f"{one['bytes']:.0f}", f"{one['restart']['seconds']:.2f} s",
        )
        for name, one in of(found)
    ]  # fmt: skip
    takes = [
        (
            name, f"{take['batch']}", f"{take['few']:,.0f}", f"{take['many']:,.0f}", f"{take['ratio']:.0%}",
            f"{take['processor_ratio']:.0%}",
        )
        for name, one in of(found)
        for take in one["take"]
    ]  # fmt: skip
    looks = [
        (name, what, f"{each['median']:.2f} ms", f"{each['worst']:.2f} ms")
        for name, one in of(found)
        for what, each in [("stats()", one["stats_ms"]), *((f"page: {n}", e) for n, e in one["pages_ms"].items())]
    ]
    return [
        table(("storage", "load", "jobs a second", "last tenth to first", "bytes a job", "restart, first take"), loads),
        "",
        table(("storage", "batch", f"takes a second, {few} waiting", f"{found['jobs']:,} waiting", "ratio",
               "ratio by processor"), takes),
        "",
        table(("storage", "look", "median", "worst"), looks),
        "",
        *(f"- {name}: {line}" for name, one in of(found) for line in one["verdict"]),
    ]  # fmt: skip


def queues(found: dict[str, Any]) -> list[str]:
    rows = [
        (
            name, f"{count:,}", f"{one[words]['seconds']:.2f} s", f"{one[words]['rate']:,.0f}",
            f"{one[words]['client_share']:.2%}", f"{one[words]['server_share']:.2%}",
            f"{one[words]['latency_ms']:.1f} ms", f"{one[words]['latency_99_ms']:.1f} ms",
        )
        for name, one in of(found)
        for words, count in (("one", 1), ("many", found["queues"]))
    ]  # fmt: skip
    heads = ("storage", "queues", f"{found['jobs']:,} jobs in", "jobs a second", "idle worker", "idle store",
             "latency", "99th")  # fmt: skip
    return [table(heads, rows)]


def delayed(found: dict[str, Any]) -> list[str]:
    rows = [
        (
            name, f"{one['median_ms']:.1f} ms", f"{one['p99_ms']:.1f} ms", f"{one['worst_ms']:.0f} ms",
            f"{one['early']}", f"{one['worst_backlog']:,}", f"{one['all_ran_after']:.1f} s",
            f"{(one['client'] + one['server']) * 1e6:.1f} µs",
        )
        for name, one in of(found)
    ]  # fmt: skip
    heads = (
        "storage",
        "late, median",
        "99th",
        "worst",
        "early",
        "largest backlog",
        "all had run after",
        "processor a job",
    )
    return [table(heads, rows), "", *(_keeps_up(name, one) for name, one in of(found))]


def _keeps_up(name: str, one: dict[str, Any]) -> str:
    rate = f"{one['due_rate']:,.0f} a second"
    if one["stored_ahead"] < 0:
        return (
            f"- {name}: the load ended {-one['stored_ahead']:.1f} s after the first was due, which makes them late too."
        )
    if one["keeps_up"]:
        return f"- {name}: one worker process keeps up with {rate}."
    steps = one["steps"]
    some = [steps[len(steps) * part // 6] for part in range(1, 6)]
    shown = ", ".join(f"{step['backlog']:,} after {step['at']:.0f} s" for step in some)
    return f"- {name}: they come faster ({rate}) than one worker process runs them. Backlog: {shown}."


def waiters(found: dict[str, Any]) -> list[str]:
    rows = [
        (
            name, f"{found['waiters']:,}", f"{found['keys']:,}", f"{one['joined_seconds']:.2f} s",
            f"{one['served_seconds']:.2f} s", f"{one['fetches']:,}", f"{one['deliveries']:,}",
        )
        for name, one in of(found)
    ]  # fmt: skip
    return [table(("storage", "waiters", "keys", "all joined in", "all served in", "fetches", "deliveries"), rows)]


def workers(found: dict[str, Any]) -> list[str]:
    rows = [
        (
            name, f"{point['processes']}", f"{point['rate']:,.0f}",
            f"{point['rate'] / one['points'][0]['rate']:.2f}", f"{point['client'] * 1e6:.1f} µs",
            f"{point['server'] * 1e6:.1f} µs", f"{point['memory'] / point['processes'] / 2**20:.0f} MiB",
        )
        for name, one in of(found)
        for point in one["points"]
    ]  # fmt: skip
    heads = ("storage", "processes", "jobs a second", "to one", "worker, a job", "store, a job", "memory of each")
    lines = [
        f"- {name}: {one['stops_at']} process{'es' if one['stops_at'] > 1 else ''} give nine tenths of the best rate."
        for name, one in of(found)
    ]
    return [table(heads, rows), "", *lines]


def cluster(found: dict[str, Any]) -> list[str]:
    def shown(nodes: Sequence[float]) -> str:
        return " + ".join(f"{node * 1e6:.1f}" for node in nodes) + " µs"

    rows = [
        (
            f"{point['masters']}", f"{point['enqueue_rate']:,.0f}", f"{point['enqueue_client'] * 1e6:.1f} µs",
            shown(point["enqueue_nodes"]), f"{point['drain_rate']:,.0f}", f"{point['drain_client'] * 1e6:.1f} µs",
            shown(point["drain_nodes"]),
        )
        for point in found["points"]
    ]  # fmt: skip
    heads = ("masters", "enqueued a second", "client, a job", "masters, a job", "drained a second", "worker, a job",
             "masters, a job")  # fmt: skip
    return [table(heads, rows)]


def costs(found: dict[str, Any]) -> list[str]:
    rows = [
        (
            name, what, f"{point['batch']:,.0f}", f"{point['client'] * 1e6:.1f} µs", f"{point['server'] * 1e6:.1f} µs",
            f"{point['wire']:,.0f}", f"{point['disk']:,.0f}",
        )
        for name, one in of(found)
        for what, words in (("enqueue", "enqueue"), ("take + settle", "run"))
        for point in one[words]
    ]  # fmt: skip
    heads = ("storage", "operation", "batch", "client, a job", "store, a job", "network bytes", "disk bytes")
    return [table(heads, rows), "", f"- The disk syncs a page in {found['sync_seconds'] * 1000:.2f} ms."]


def model_costs(record: Record) -> list[str]:
    """The two numbers of each line."""
    rows = []
    for storage in STORAGES:
        if found := costs_of(record, storage):
            for what, one in (("enqueue", found.enqueue), ("take + settle", found.run)):
                cells = [
                    f"{line.call * 1e6:,.0f} + {line.job * 1e6:.2f} n" for line in (one.client, one.server, one.wait)
                ]
                sizes = [f"{line.call:,.0f} + {line.job:,.0f} n" for line in (one.wire, one.disk)]
                extra = f"{found.extra * 1e6:.1f}" if what != "enqueue" else ""
                rows.append((NAMES[storage], what, *cells, extra, *sizes))
    heads = ("storage", "call with n jobs", "client µs", "store µs", "wait µs", "worker µs a job", "network bytes",
             "disk bytes")  # fmt: skip
    return [table(heads, rows)] if rows else []


def model_checks(found: Sequence[Check]) -> list[str]:
    if not found:
        return []
    rows = [
        (NAMES[one.storage], one.what, f"{one.predicted:,.0f}", f"{one.measured:,.0f}", f"{one.error:+.0%}")
        for one in found
    ]
    median, worst = errors(found)
    told = f"Median error {median:.0%}, worst {worst:.0%}, over {len(found)} points."
    return [told, "", table(("storage", "point", "predicted", "measured", "error"), rows)]


def model_needs(record: Record, plan: Plan, node: Node) -> list[str]:
    rows = []
    for storage in STORAGES:
        if found := costs_of(record, storage):
            need = needs(found, plan, node)
            # A file has one machine: more nodes are more files, which Accoda does not spread a queue over.
            rows.append(
                (
                    NAMES[storage], f"{need.client_cores:.1f}", f"{need.server_cores:.1f}", f"{need.nodes}", need.first,
                    f"{need.commits:,.0f}" if found.synced else "1 a node", f"{need.disk / 1e6:,.1f} MB",
                    f"{need.network * 8 / 1e6:,.0f} Mbit" if need.network else "none",
                    f"{need.backlog_hour / 1e9:,.1f} GB", f"{need.backlog_day / 1e9:,.0f} GB",
                )
            )  # fmt: skip
    heads = ("storage", "client cores", "store cores", "nodes", "first to saturate", "commits/s", "disk/s", "network/s",
             "backlog of an hour", "of a day")  # fmt: skip
    told = (
        f"{plan.jobs_per_day:,.0f} jobs a day are {plan.average:,.0f} a second on average and {plan.most:,.0f} at the "
        f"peak ({plan.peak:g} times); payload {plan.payload:,} bytes, enqueued {plan.enqueue_batch:,} and taken "
        f"{plan.batch:,} at a time, processors at most {plan.use:.0%} busy."
    )
    return [told, "", table(heads, rows)] if rows else []


def model_limits(record: Record, plan: Plan, node: Node) -> list[str]:
    """What so many nodes carry, and the first three parts to saturate."""
    rows = []
    for storage in STORAGES:
        if found := costs_of(record, storage):
            for nodes in NODES if storage != "sqlite" else NODES[:1]:
                order = limits(found, plan, node, nodes)
                words = [f"{what} ({rate:,.0f})" for what, rate in order[1:3]]
                rows.append(
                    (NAMES[storage], f"{nodes}", f"{order[0][1]:,.0f}", order[0][0], "then " + ", ".join(words))
                )
    return [table(("storage", "nodes", "jobs a second", "first to saturate", "next"), rows)] if rows else []


PARTS: dict[str, tuple[str, Callable[[dict[str, Any]], list[str]]]] = {
    "many": ("Ten million jobs that wait", many),
    "queues": ("A thousand queues in one worker", queues),
    "delayed": ("A million delayed jobs, due within a minute", delayed),
    "waiters": ("Ten thousand waiters on a thousand keys", waiters),
    "workers": ("One to eight worker processes", workers),
    "cluster": ("A partitioned queue on a Redis Cluster", cluster),
    "costs": ("What one job costs", costs),
}


def part(record: Record, name: str) -> list[str]:
    found = record.get(name)
    return [*PARTS[name][1](found), "", f"*{found['machine']}, {found['date']}.*"] if found else []


def all_checks(record: Record) -> list[Check]:
    from benchmarks.report import RESULTS

    return checks(record, RESULTS / "bench.json")
