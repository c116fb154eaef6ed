"""`accoda doctor`: examine a deployment, and say what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from accoda.cli.common import APP, StoreOptions, load_app, present, store_options
from accoda.cli.draw import columns_of, echo, paragraph, style

if TYPE_CHECKING:
    from accoda.operations.doctor import Finding

PROBLEMS, WARNINGS = 2, 1
_COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "problem": "red"}


@click.command()
@click.argument("module_app", metavar="[MODULE:APP]", required=False, envvar=APP)
@click.option("--strict", is_flag=True, help="Warnings end with 1, too.")
@click.option("--quiet", is_flag=True, help="Leave out what is in order.")
@store_options
def doctor(module_app: str | None, strict: bool, quiet: bool, store: StoreOptions) -> None:
    """Examine a store and its surroundings, and say what to change.

    It looks at versions, clocks, durability, memory, layout, queues, workers and schedules, and changes nothing. It
    ends with 0 if all is well, with 2 if there are problems, and with --strict with 1 if there are warnings.
    """
    findings = _examine(store, module_app or store.app)
    shown = [finding for finding in findings if not quiet or finding.level != "ok"]
    present(store, shown, _draw)
    levels = {finding.level for finding in findings}
    if "problem" in levels:
        raise click.exceptions.Exit(PROBLEMS)
    if strict and "warning" in levels:
        raise click.exceptions.Exit(WARNINGS)


def _examine(store: StoreOptions, target: str | None) -> list[Finding]:
    import asyncio

    from accoda.app import App
    from accoda.operations.doctor import examine

    app = None if target is None else load_app(target)
    return asyncio.run(examine(store.url or (app or App()).url, app))


def _draw(findings: list[Finding]) -> None:
    """A line for each, with what to do below it; long ones are folded, never cut: each word may matter."""
    names = min(22, max((columns_of(finding.what) for finding in findings), default=0))
    for finding in findings:
        head = (style(finding.level.ljust(7), _COLOURS[finding.level]), f"  {finding.what:<{names}}  ")
        paragraph(finding.found, head, 11 + names)
        if finding.advice:
            paragraph(finding.advice, (" " * 9, style("→ ", dim=True)), 11)
    echo(_summary(findings))


def _summary(findings: list[Finding]) -> str:
    counts = {level: sum(finding.level == level for finding in findings) for level in ("problem", "warning", "note")}
    said = [f"{count} {level}{'s' if count > 1 else ''}" for level, count in counts.items() if count]
    return f"\n{', '.join(said)}." if said else "\nAll is well."
