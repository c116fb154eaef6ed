"""What a run leaves behind: scale.md, charts, and the tables between the markers of docs/scale.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.charts import Axis, Bar, Group, Series, Theme, bars, lines, save
from benchmarks.report import RESULTS
from benchmarks.scale import tables
from benchmarks.scale.model import Check, Node, Plan
from benchmarks.scale.record import Record
from benchmarks.scale.tables import NAMES, PARTS

DOCS = RESULTS.parent.parent / "docs" / "scale.md"
MARK = re.compile(r"(<!-- scale: ([a-z-]+) -->\n).*?(<!-- /scale -->)", re.DOTALL)


def sections(record: Record) -> dict[str, list[str]]:
    """Every table by the name that a marker asks for."""
    plan, node = Plan(), Node()
    return {
        **{name: tables.part(record, name) for name in PARTS},
        "model-costs": tables.model_costs(record),
        "model-checks": tables.model_checks(tables.all_checks(record)),
        "model-needs": tables.model_needs(record, plan, node),
        "model-limits": tables.model_limits(record, plan, node),
    }


def markdown(found: Mapping[str, Sequence[str]]) -> str:
    titles = {
        **{name: title for name, (title, _) in PARTS.items()},
        "model-costs": "The model: what a call costs",
        "model-checks": "The model beside what was measured",
        "model-needs": "The model: what a billion jobs a day need",
        "model-limits": "The model: what so many nodes carry",
    }
    parts = [f"## {titles[name]}\n\n" + "\n".join(lines) for name, lines in found.items() if lines]
    return (
        "# Scale\n\nWritten by `make bench-scale`; [docs/scale.md](../../docs/scale.md) explains it.\n\n"
        + "\n\n".join(parts)
    )


def inserted(text: str, found: Mapping[str, Sequence[str]]) -> str:
    """A document with the tables between its markers; one that was not measured stays as it is."""

    def fill(match: re.Match[str]) -> str:
        if match[2] not in found:
            raise ValueError(f"docs/scale.md asks for {match[2]!r}; there is {', '.join(found)}")
        lines = found[match[2]]
        return match[1] + "\n" + "\n".join(lines) + "\n\n" + match[3] if lines else match[0]

    return MARK.sub(fill, text)


def write(record: Record, docs: Path | None = DOCS) -> None:
    """Into the record's folder, and into the document."""
    if record.folder is None:
        return
    found = sections(record)
    (record.folder / "scale.md").write_text(markdown(found) + "\n")
    charts(record)
    if docs is not None and docs.exists():
        docs.write_text(inserted(docs.read_text(), found))


def charts(record: Record) -> None:
    assert record.folder is not None
    draws = {
        "scale-many": ("many", _load_chart),
        "scale-take": ("many", _take_chart),
        "scale-delayed": ("delayed", _delayed_chart),
    }
    for name, (part, draw) in draws.items():
        if found := record.get(part):
            save(record.folder, name, lambda theme, draw=draw, found=found: draw(found, theme))  # type: ignore[misc]
    checks = tables.all_checks(record)
    if record.get("workers"):
        save(record.folder, "scale-workers", lambda theme: _workers_chart(record.get("workers"), checks, theme))
    if checks:
        save(record.folder, "scale-model", lambda theme: _model_chart(checks, theme))


def _load_chart(found: dict[str, Any], theme: Theme) -> str:
    series = [Series(name, [(at / 1e6, rate) for at, rate in one["load_steps"]]) for name, one in tables.of(found)]
    title = f"Jobs stored a second, on the way to {found['jobs']:,}"
    return lines(title, series, x=Axis("million jobs in the store"), y=Axis("jobs a second"), theme=theme)


def _take_chart(found: dict[str, Any], theme: Theme) -> str:
    groups = [
        Group(
            f"{name}, batches of {take['batch']}",
            [
                Bar(f"{found['few']:,} waiting", [take["few"]], f"{take['few']:,.0f}/s", "other"),
                Bar(
                    f"{found['jobs']:,} waiting", [take["many"]], f"{take['many']:,.0f}/s, {take['ratio']:.0%}", "ours"
                ),
            ],
        )
        for name, one in tables.of(found)
        for take in one["take"]
    ]
    return bars("Jobs taken a second, few waiting and many", groups, note="Medians of rounds in turns", theme=theme)


def _delayed_chart(found: dict[str, Any], theme: Theme) -> str:
    series = [Series(name, [(s["at"], s["backlog"]) for s in one["steps"]], "line") for name, one in tables.of(found)]
    title = f"{found['jobs']:,} delayed jobs, due within {found['window']:.0f} s: due and not run yet"
    return lines(title, series, x=Axis("seconds since the first was due"), y=Axis("jobs"), theme=theme)


def _workers_chart(found: dict[str, Any], checks: Sequence[Check], theme: Theme) -> str:
    series = []
    for storage, name in NAMES.items():
        if storage in found:
            points = found[storage]["points"]
            series.append(Series(name, [(point["processes"], point["rate"]) for point in points], "points"))
            predicted = [c.predicted for c in checks if c.storage == storage and "worker process" in c.what]
            pairs = zip(points, predicted, strict=False)
            if predicted:
                series.append(Series(name, [(point["processes"], rate) for point, rate in pairs], "dashed"))
    return lines(
        "Jobs drained a second by worker processes on one machine", series,
        x=Axis("worker processes"), y=Axis("jobs a second"), note="Dots: measured. Dashed: the model.", theme=theme,
    )  # fmt: skip


def _model_chart(checks: Sequence[Check], theme: Theme) -> str:
    series = [
        Series(name, [(check.measured, check.predicted) for check in checks if check.storage == storage], "points")
        for storage, name in NAMES.items()
        if any(check.storage == storage for check in checks)
    ]
    ends = [min(check.measured for check in checks), max(check.measured for check in checks)]
    same = Series("exactly right", [(end, end) for end in ends], "dashed")
    return lines(
        "The model beside what was measured", [*series, same],
        x=Axis("measured, jobs a second", log=True), y=Axis("predicted", log=True), theme=theme,
    )  # fmt: skip
