"""The charts of the report: one question each, all storages in one drawing, light and dark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.charts import Bar, Group, Theme, bars, save
from benchmarks.peers.findings import Entry, Section

LEGEND = {"ours": "Accoda", "other": "other queues"}
CEILING = {**LEGEND, "ceiling": "the bare engine under Accoda"}
SAFE = "* may lose the jobs in hand when its worker is killed, or the last commits in a power cut."


def draw(folder: Path, sections: Mapping[str, Section]) -> list[str]:
    """Every chart for which there is something to draw; their names."""
    names = [name for name, (measure, value, _) in CHARTS.items() if _is_known(sections, measure, value)]
    for name in names:
        save(folder, f"peers-{name}", partial(CHARTS[name][2], sections))
    return names


def _is_known(sections: Mapping[str, Section], measure: str, value: str) -> bool:
    entries = [entry for section in sections.values() for entry in section.entries]
    return any(entry.of(measure).known(value) for entry in entries)


def drain(sections: Mapping[str, Section], theme: Theme) -> str:
    groups = [group(section, ["drain1"], _rates("drain1"), ceiling=True) for section in sections.values()]
    note = f"Jobs a second by one worker process; more is better. {SAFE}"
    return bars("Drain of no-op jobs", groups, note=note, legend=CEILING, theme=theme)


def enqueue(sections: Mapping[str, Section], theme: Theme) -> str:
    groups = [group(section, ["enqueue", "bulk"], _rates("enqueue", "bulk")) for section in sections.values()]
    note = "Jobs a second by one process, on a logarithmic scale: one by one / in bulk, where there is such a call."
    shades = ("one by one", "in bulk")
    return bars("Enqueue", groups, note=note, legend=LEGEND, shades=shades, how="paired", log=True, theme=theme)


def latency(sections: Mapping[str, Section], theme: Theme) -> str:
    lates = _lates("latency")
    groups = [group(section, ["latency"], lates, ceiling=True, least=True) for section in sections.values()]
    note = "From enqueue to the handler, an idle worker; milliseconds on a logarithmic scale; less is better."
    return bars("Idle latency", groups, note=note, legend=CEILING, shades=SHADES, how="range", log=True, theme=theme)


def lateness(sections: Mapping[str, Section], theme: Theme) -> str:
    groups = [group(section, ["delayed"], _lates("delayed"), least=True) for section in sections.values()]
    note = "From the moment a delayed job is due to its handler; milliseconds on a logarithmic scale; less is better."
    title = "Lateness of delayed jobs"
    return bars(title, groups, note=note, legend=LEGEND, shades=SHADES, how="range", log=True, theme=theme)


def processor(sections: Mapping[str, Section], theme: Theme) -> str:
    groups = [group(section, ["drain1"], _costs, ceiling=True, least=True) for section in sections.values()]
    note = "Microseconds for each job of a drain; less is better: what is left is for your own code."
    shades = ("worker", "server")
    return bars("Processor time for each job", groups, note=note, legend=CEILING, shades=shades, theme=theme)


def stored(sections: Mapping[str, Section], theme: Theme) -> str:
    groups = [group(section, ["bytes"], _bytes, least=True) for section in sections.values()]
    note = "Bytes in the store for each job that waits, payload and indexes included; less is better."
    return bars("Bytes for a waiting job", groups, note=note, legend=LEGEND, theme=theme)


# By name: the measure and the value that it shows, and how it is drawn.
CHARTS: dict[str, tuple[str, str, Callable[[Mapping[str, Section], Theme], str]]] = {
    "drain": ("drain1", "rate", drain),
    "enqueue": ("enqueue", "rate", enqueue),
    "latency": ("latency", "late", latency),
    "lateness": ("delayed", "late", lateness),
    "processor": ("drain1", "client", processor),
    "bytes": ("bytes", "bytes", stored),
}
SHADES = ("median", "99th percentile")
Show = Callable[[Entry], tuple[list[float], str]]


def group(
    section: Section, measures: Sequence[str], show: Show, *, ceiling: bool = False, least: bool = False
) -> Group:  # fmt: skip
    """The entries of a storage, best first; those that have nothing to show come last and say why."""
    rows = []
    for entry in section.entries:
        if not entry.has(*measures) or (entry.ceiling and not ceiling):
            continue
        values, words = show(entry)
        if not values:
            found = entry.of(measures[0])
            words = "failed" if found.failed else found.absent
        kind = "ours" if entry.ours else "ceiling" if entry.ceiling else "other"
        star = "" if entry.safe and entry.durable else " *"
        rows.append(Bar(section.label(entry) + star, values, words, kind))
    rows.sort(key=lambda bar: (not bar.values, (1 if least else -1) * (bar.values[0] if bar.values else 0.0)))
    return Group(section.about, rows)


def _rates(*measures: str) -> Show:
    def show(entry: Entry) -> tuple[list[float], str]:
        found = [rate for measure in measures if (rate := entry.rate(measure)) is not None]
        return found, " / ".join(f"{rate:,.0f}" for rate in found)

    return show


def _lates(measure: str) -> Show:
    """A job may be early; what is before its time is drawn as nothing, and said."""

    def show(entry: Entry) -> tuple[list[float], str]:
        middle, last = entry.late(measure, 0.5), entry.late(measure, 0.99)
        if middle is None or last is None:
            return [], ""
        first = min(entry.of(measure).late())
        early = f", earliest {first * 1e3:,.0f}" if first < -0.0005 else ""
        return [middle * 1e3, last * 1e3], f"{_short(middle)} / {_short(last)} ms{early}"

    return show


def _short(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f}" if abs(seconds) < 0.01 else f"{seconds * 1e3:,.0f}"


def _costs(entry: Entry) -> tuple[list[float], str]:
    client, server = entry.middle("drain1", "client"), entry.middle("drain1", "server")
    if client is None or server is None:
        return [], ""
    if not server:  # the engine is a part of the worker
        return [client], f"{client:,.1f}"
    return [client, server], f"{client:,.1f} + {server:,.1f}"


def _bytes(entry: Entry) -> tuple[list[float], str]:
    value = entry.middle("bytes", "bytes")
    return ([], "") if value is None else ([value], f"{value:,.0f}")
