"""The results of a simulated day: a table for people, the same as JSON, and a chart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from .automations import MINUTE, TIERS
from .chart import draw, length
from .simulation import Outcome, Prefetched, Wanted


class Waits(Struct, frozen=True):
    """The waiting of some requests, in minutes, and the share of them that was delivered by its due time.

    One that still waits at the end has waited that long at least, and counts so.
    """

    requests: int
    median: float
    p95: float
    worst: float
    on_time: float


class Row(Struct, frozen=True):
    """One variant. `tokens` were spent of the `offered`; `waits` are by tier, and of all as "all"."""

    name: str
    calls: int
    tokens: int
    offered: int
    refused: int
    failed: int
    requests: int
    delivered: int
    waiting: int
    again: int
    buried: int
    answers: dict[str, int]
    prefetched: Prefetched
    waits: dict[str, Waits]


def row_of(name: str, outcome: Outcome) -> Row:
    """The figures of one variant."""
    requests, ends = outcome.requests, outcome.ended_at
    delivered = sum(wanted.delivered_at is not None for wanted in requests)
    of_tier = {tier: [wanted for wanted in requests if wanted.tier == tier] for tier in TIERS}
    return Row(
        name=name,
        calls=outcome.counts.calls,
        tokens=outcome.counts.spent,
        offered=outcome.offered,
        refused=outcome.counts.refused,
        failed=outcome.counts.errors + outcome.counts.broken,
        requests=len(requests),
        delivered=delivered,
        waiting=len(requests) - delivered,
        again=outcome.again,
        buried=outcome.buried,
        answers={what: sum(wanted.answer == what for wanted in requests) for what in ("cached", "attached", "created")},
        prefetched=outcome.prefetched,
        waits={"all": waits_of(requests, ends)} | {tier: waits_of(of_tier[tier], ends) for tier in TIERS},
    )


def waits_of(requests: Sequence[Wanted], ends: int) -> Waits:
    """How long these waited. Whether one is in time is known only of those that were due before the end."""
    minutes = sorted(((wanted.delivered_at or ends) - wanted.at) / MINUTE for wanted in requests) or [0.0]
    known = [wanted for wanted in requests if wanted.due <= ends]
    in_time = sum(wanted.delivered_at is not None and wanted.delivered_at <= wanted.due for wanted in known)
    return Waits(
        requests=len(requests),
        median=round(median(minutes), 3),
        p95=round(minutes[min(len(minutes) - 1, int(len(minutes) * 0.95))], 3),
        worst=round(minutes[-1], 3),
        on_time=round(in_time / len(known), 4) if known else 1.0,
    )


def text(rows: Sequence[Row], hours: float = 24.0) -> str:
    """The report as Markdown that can be read in a terminal, too."""
    first = rows[0]
    return "\n\n".join(
        (
            f"{first.requests:,} requests in {hours:g} hours; the API offered {first.offered:,} tokens.",
            "## What the API saw",
            table(("variant", "calls", "tokens", "of those offered", "429s", "failed calls"), map(_spending, rows)),
            "## Who waited, and how long",
            "From a request to its post, in minutes unless marked s: the median, then the 95th percentile.",
            table(("variant", *TIERS, "worst", "delivered", "still waiting"), map(_waiting, rows)),
            "## Posted by the promised time",
            table(("variant", *TIERS, "all"), map(_on_time, rows)),
            "## How requests were answered, and prefetches",
            table(
                ("variant", "cached", "attached", "created", "made ahead", "done", "wanted meanwhile", "tokens"),
                map(_answers, rows),
            ),
        )
    )


def table(headings: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose columns also line up in a terminal."""
    lines = list(cells)
    widths = [max(len(line[place]) for line in (headings, *lines)) for place in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        first, *others = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        return "| " + " | ".join((cells[0].ljust(len(first)), *others)) + " |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join((line(headings), line(rule), *map(line, lines)))


def save(rows: Sequence[Row], hours: float, folder: Path) -> None:
    """`day.md`, `day.json` and `day.svg`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "day.md").write_text("# A simulated day\n\n" + text(rows, hours) + "\n")
    (folder / "day.json").write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
    (folder / "day.svg").write_text(draw(rows))


def _spending(row: Row) -> tuple[str, ...]:
    share = f"{row.tokens / row.offered:.0%}"
    return row.name, f"{row.calls:,}", f"{row.tokens:,}", share, str(row.refused), str(row.failed)


def _waiting(row: Row) -> tuple[str, ...]:
    waits = (f"{length(row.waits[tier].median)} / {length(row.waits[tier].p95)}" for tier in TIERS)
    return row.name, *waits, length(row.waits["all"].worst), f"{row.delivered:,}", str(row.waiting)


def _on_time(row: Row) -> tuple[str, ...]:
    return row.name, *(f"{row.waits[tier].on_time:.1%}" for tier in (*TIERS, "all"))


def _answers(row: Row) -> tuple[str, ...]:
    ahead = row.prefetched
    numbers = (*row.answers.values(), ahead.created, ahead.completed, ahead.converted, ahead.tokens)
    return row.name, *(f"{number:,}" for number in numbers)
