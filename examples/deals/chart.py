"""The day as a chart: how long each tier waits, and what that costs. One file for light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from .automations import TIERS

if TYPE_CHECKING:
    from .report import Row

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f } .small { fill: #57606a; font-size: 11px }
.head { font-weight: 600 } .line { stroke: #d0d7de } .most { fill: #eaeef2 } .spent { fill: #57606a }
.business { fill: #8250df } .pro { fill: #2f6feb } .starter { fill: #1a9c8c } .free { fill: #b7791f }
.mid { stroke: #ffffff; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9da7b3 } .line { stroke: #3d444d } .most { fill: #2a313a }
  .spent { fill: #9da7b3 } .business { fill: #a475f9 } .pro { fill: #5c93ff } .starter { fill: #3fb9a8 }
  .free { fill: #d6a13f } .mid { stroke: #0d1117 }
}
"""
LEFT, WAITS, COST = 10, 150, 575
"""Where the columns begin: the names, the waiting times, the tokens."""
WAIT_WIDTH, COST_WIDTH = 330, 190
BAR, GAP, GROUP = 11, 3, 74


def draw(rows: Sequence[Row]) -> str:
    """Bars for each variant: the 95th percentile of the wait by tier, with a notch at the median; the tokens spent."""
    longest = max(row.waits[tier].p95 for row in rows for tier in TIERS) or 1.0
    parts = [_headings(rows)]
    for place, row in enumerate(rows):
        top = 84 + place * GROUP
        parts.append(_variant(row, top, longest))
    height = 84 + len(rows) * GROUP
    title = "A day of automations: waiting time by tier, and tokens"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 {height}" role="img">'
        f"<title>{title}</title><style>{STYLE}</style>{''.join(parts)}</svg>\n"
    )


def length(minutes: float, unit: str = "") -> str:
    """A length of time for people.

    >>> length(0.05), length(2.04), length(2.04, " min")
    ('3 s', '2.0', '2.0 min')
    """
    return f"{minutes * 60:.0f} s" if minutes < 0.995 else f"{minutes:.1f}{unit}"


def _headings(rows: Sequence[Row]) -> str:
    legend, x = [], WAITS
    for tier in TIERS:
        legend.append(f'<rect class="{tier}" x="{x}" y="42" width="10" height="10" rx="2"/>')
        legend.append(f'<text class="small" x="{x + 15}" y="51">{tier}</text>')
        x += 34 + 6 * len(tier)
    return (
        f'<text class="head" x="{WAITS}" y="18">From request to post</text>'
        f'<text class="small" x="{WAITS}" y="34">95 of 100 wait no longer than the bar; the notch is the median</text>'
        + "".join(legend)
        + f'<text class="head" x="{COST}" y="18">Tokens spent</text>'
        f'<text class="small" x="{COST}" y="34">of the {rows[0].offered:,} that the API offered</text>'
    )


def _variant(row: Row, top: int, longest: float) -> str:
    parts = [
        f'<line class="line" x1="{LEFT}" x2="770" y1="{top - 10}" y2="{top - 10}"/>',
        f'<text class="head" x="{LEFT}" y="{top + 12}">{escape(row.name)}</text>',
        f'<text class="small" x="{LEFT}" y="{top + 29}">{row.waits["all"].on_time:.1%} in time</text>',
    ]
    for place, tier in enumerate(TIERS):
        y, waits = top + place * (BAR + GAP), row.waits[tier]
        width = max(2.0, WAIT_WIDTH * waits.p95 / longest)
        parts.append(f'<rect class="{tier}" x="{WAITS}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>')
        mid = WAITS + WAIT_WIDTH * waits.median / longest
        if 3 < mid - WAITS < width - 2:
            parts.append(f'<line class="mid" x1="{mid:.1f}" x2="{mid:.1f}" y1="{y}" y2="{y + BAR}"/>')
        parts.append(f'<text class="small" x="{WAITS + width + 6:.1f}" y="{y + 10}">{length(waits.p95, " min")}</text>')
    return "".join(parts) + _cost(row, top)


def _cost(row: Row, top: int) -> str:
    width = max(2.0, COST_WIDTH * row.tokens / row.offered)
    refused = f", {row.refused} refused" if row.refused else ", none refused"
    return (
        f'<rect class="most" x="{COST}" y="{top}" width="{COST_WIDTH}" height="{BAR + 5}" rx="2"/>'
        f'<rect class="spent" x="{COST}" y="{top}" width="{width:.1f}" height="{BAR + 5}" rx="2"/>'
        f'<text x="{COST}" y="{top + 32}">{row.tokens:,} tokens</text>'
        f'<text class="small" x="{COST}" y="{top + 48}">{row.calls:,} calls{refused}</text>'
    )
