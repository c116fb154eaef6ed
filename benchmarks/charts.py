"""Charts as SVG, light and dark, without a library: horizontal bars, and lines over two axes.

`save(folder, "peers-drain", draw)` writes `peers-drain-light.svg` and `peers-drain-dark.svg`, where `draw(theme)` gives
the text of one: `lambda theme: bars("Jobs a second", groups, theme=theme)`. Everything is 800 wide; the height follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH = 800
EDGE = 16  # free on the left and on the right
LETTER = 6.9  # how wide a letter of 12 px is at most, on average: fonts differ, and no text may be cut off
LABEL = 290  # the widest that labels may be before they break into two lines


@dataclass(frozen=True)
class Theme:
    """Colours that stand out from the background at 4.5 to 1 (text) and 3 to 1 (everything else)."""

    name: str
    background: str
    text: str
    faint: str
    grid: str
    kinds: Mapping[str, str]
    palette: Sequence[str]


LIGHT = Theme(
    "light", "#ffffff", "#1f2328", "#57606a", "#d8dee4",
    {"ours": "#0969da", "other": "#818b98", "ceiling": "#b07800"},
    ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#cf222e", "#0f766e"),
)  # fmt: skip
DARK = Theme(
    "dark", "#0d1117", "#e6edf3", "#9da7b3", "#30363d",
    {"ours": "#4493f8", "other": "#848d97", "ceiling": "#d29922"},
    ("#4493f8", "#f0883e", "#3fb950", "#bc8cff", "#ff7b72", "#39c5cf"),
)  # fmt: skip
THEMES = (LIGHT, DARK)


@dataclass(frozen=True)
class Bar:
    """One line of a bar chart. `kind` ("ours", "other" or "ceiling") is its colour, `text` stands at its end.

    With no values nothing is drawn but the text, which then says why ("none", "failed").
    """

    label: str
    values: Sequence[float]
    text: str = ""
    kind: str = "other"


@dataclass(frozen=True)
class Group:
    """Bars that share a scale, under a title of their own."""

    title: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Series:
    """Points of a line chart: drawn as dots ("points"), as a "line", as a "dashed" line, or as "both" dots and line."""

    name: str
    points: Sequence[tuple[float, float]]
    style: str = "both"


@dataclass(frozen=True)
class Axis:
    """What an axis says, and whether its scale is logarithmic (from the first decade; otherwise from 0)."""

    label: str
    log: bool = False


def save(folder: Path, name: str, draw: Callable[[Theme], str]) -> list[Path]:
    """Write a chart in every theme: `NAME-light.svg` and `NAME-dark.svg`."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}-{theme.name}.svg" for theme in THEMES]
    for path, theme in zip(paths, THEMES, strict=True):
        path.write_text(draw(theme))
    return paths


# ---- bars


def bars(
    title: str,
    groups: Sequence[Group],
    *,
    note: str = "",
    legend: Mapping[str, str] | None = None,
    shades: Sequence[str] = (),
    how: str = "stacked",
    log: bool = False,
    theme: Theme = LIGHT,
) -> str:
    """Horizontal bars with their values, one scale for each group.

    `how` says what several values of a bar are: "stacked" (parts of a sum), "range" (the second reaches further than
    the first, as a 99th percentile beyond a median) or "paired" (a thin bar for each). `shades` names them, in order;
    `legend` names the kinds. `note` stands under the title and should give the unit. `log`: decades.
    """
    rows = [bar for group in groups for bar in group.bars]
    lines = [_wrapped(bar.label) for bar in rows]
    bold = [1.1 if bar.kind == "ours" else 1.0 for bar in rows]
    left = EDGE + 8 + max((_width(part) * b for line, b in zip(lines, bold, strict=True) for part in line), default=0)
    right = WIDTH - EDGE - 8 - max((_width(bar.text) * b for bar, b in zip(rows, bold, strict=True)), default=0)
    parts, top = _heading(title, note)
    keys = [(theme.kinds[kind], 1.0, words) for kind, words in (legend or {}).items()]
    keys += [(theme.text, _shade(place), words) for place, words in enumerate(shades)]  # of whatever colour
    legend_parts, top = _legend(keys, top)
    parts += legend_parts
    for group in groups:
        parts.append(f'<text x="{EDGE}" y="{top + 14}" class="strong">{escape(group.title)}</text>')
        top += 24
        scale = _bar_scale(group.bars, left, right, how, log)
        for bar in group.bars:
            row, height = _row(bar, top, scale, how, theme)
            parts += row
            top += height
        top += 12
    return _document(title, parts, top, theme)


def _row(bar: Bar, top: float, scale: Callable[[float], float], how: str, theme: Theme) -> tuple[list[str], int]:
    """One bar with its label and its text, and how high all of it is."""
    label = _wrapped(bar.label)
    height = max(22, 15 * len(label) + 4)
    start, middle = scale(-math.inf), top + height / 2
    strong = ' class="strong"' if bar.kind == "ours" else ""
    parts = [
        f'<text x="{start - 8}" y="{middle + 4 + 15 * (place - (len(label) - 1) / 2):.1f}" text-anchor="end"{strong}>'
        f"{escape(part)}</text>"
        for place, part in enumerate(label)
    ]
    thick = 15.0 if how != "paired" else 15 / max(2, len(bar.values))
    ends = [start]
    for place, value in enumerate(bar.values):
        begin = start if how == "paired" else ends[-1]
        end = scale(sum(bar.values[: place + 1])) if how == "stacked" else scale(value)
        y = middle - 7.5 + (place * thick if how == "paired" else 0)
        parts.append(
            f'<rect x="{begin:.1f}" y="{y:.1f}" width="{max(1.5, end - begin):.1f}" height="{max(1, thick - 1):.1f}" '
            f'fill="{theme.kinds[bar.kind]}" fill-opacity="{_shade(place)}"/>'
        )
        ends.append(max(end, begin + 1.5))
    parts.append(f'<text x="{max(ends) + 6:.1f}" y="{middle + 4:.1f}"{strong}>{escape(bar.text)}</text>')
    return parts, height


def _bar_scale(
    drawn: Sequence[Bar], left: float, right: float, how: str, log: bool
) -> Callable[[float], float]:  # fmt: skip
    """From a value to its place; minus infinity is where bars begin."""
    reach = [sum(bar.values) if how == "stacked" else max(bar.values) for bar in drawn if bar.values]
    most = max(reach, default=0.0) or 1.0
    if not log:
        return lambda value: left + (right - left) * max(0.0, value) / most
    least = min((value for bar in drawn for value in bar.values if value > 0), default=most)
    low = math.floor(math.log10(least))
    decades = max(1e-9, math.log10(most) - low)
    return lambda value: left + (right - left) * max(0.0, (math.log10(value) - low) / decades) if value > 0 else left


def _shade(place: int) -> float:
    return (1.0, 0.45, 0.25)[min(place, 2)]


# ---- lines


def lines(
    title: str, series: Sequence[Series], *, x: Axis, y: Axis, note: str = "", height: int = 420, theme: Theme = LIGHT
) -> str:
    """Points and lines over two axes, a colour for each name: measured points and a model's line share a colour if
    they share a name, and the legend then names them once."""
    names = list(dict.fromkeys(each.name for each in series))
    colours = {name: theme.palette[place % len(theme.palette)] for place, name in enumerate(names)}
    parts, top = _heading(title, note)
    keys, top = _legend([(colours[name], 1.0, name) for name in names], top)
    xs = [point[0] for each in series for point in each.points]
    ys = [point[1] for each in series for point in each.points]
    marks_x, marks_y = _marks(xs, x.log), _marks(ys, y.log)
    left = EDGE + 26 + max(_width(short(mark)) for mark in marks_y)
    box = (left, top + 8.0, WIDTH - EDGE - 24.0, float(top + height - 46))
    place_x = _scale(marks_x, box[0], box[2], x.log)
    place_y = _scale(marks_y, box[3], box[1], y.log)
    parts += keys + _grid(marks_x, marks_y, place_x, place_y, box)
    middle, turned = (box[0] + box[2]) / 2, f"translate({EDGE + 4} {(box[1] + box[3]) / 2:.1f}) rotate(-90)"
    parts.append(
        f'<text x="{middle:.1f}" y="{box[3] + 38:.1f}" text-anchor="middle">{escape(x.label)}</text>'
        f'<text transform="{turned}" text-anchor="middle">{escape(y.label)}</text>'
    )
    for each in series:
        at = [(place_x(a), place_y(b)) for a, b in each.points]
        parts += _curve(at, each.style, colours[each.name])
    return _document(title, parts, top + height, theme)


def _curve(at: Sequence[tuple[float, float]], style: str, colour: str) -> Iterator[str]:
    if style != "points":
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in at)
        dashes = ' stroke-dasharray="6 4"' if style == "dashed" else ""
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
    if style in ("points", "both"):
        yield from (f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{colour}"/>' for a, b in at)


def _grid(
    marks_x: Sequence[float],
    marks_y: Sequence[float],
    place_x: Callable[[float], float],
    place_y: Callable[[float], float],
    box: tuple[float, float, float, float],
) -> list[str]:
    left, top, right, bottom = box
    parts = []
    for mark in marks_x:
        at = place_x(mark)
        parts.append(f'<line x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{bottom}" class="grid"/>')
        parts.append(f'<text x="{at:.1f}" y="{bottom + 17}" text-anchor="middle" class="faint">{short(mark)}</text>')
    for mark in marks_y:
        at = place_y(mark)
        parts.append(f'<line x1="{left}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}" class="grid"/>')
        parts.append(f'<text x="{left - 7}" y="{at + 4:.1f}" text-anchor="end" class="faint">{short(mark)}</text>')
    return parts


def _marks(values: Sequence[float], log: bool) -> list[float]:
    """Where the grid's lines are: decades, or about five round steps from 0; the last is at or beyond every value."""
    most = max(values, default=1.0) or 1.0
    if log:
        least = min((value for value in values if value > 0), default=most)
        low, high = math.floor(math.log10(least)), math.ceil(math.log10(most) - 1e-9)
        return [10.0**power for power in range(low, max(high, low + 1) + 1)]
    rough = most / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def _scale(marks: Sequence[float], start: float, end: float, log: bool) -> Callable[[float], float]:
    low, high = marks[0], marks[-1]
    if log:
        return lambda value: (
            start
            + (end - start) * (math.log10(max(value, low)) - math.log10(low)) / (math.log10(high) - math.log10(low))
        )
    return lambda value: start + (end - start) * (value - low) / (high - low)


# ---- what both share


def short(value: float) -> str:
    """A number in few letters, for people: 12.5k, 3M, 0.25."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _width(text: str) -> float:
    return LETTER * len(text)


def _wrapped(label: str) -> list[str]:
    """In one line, or in two of about the same length."""
    if _width(label) <= LABEL or " " not in label:
        return [label]
    spaces = [place for place, letter in enumerate(label) if letter == " "]
    cut = min(spaces, key=lambda place: abs(place - len(label) / 2))
    return [label[:cut], label[cut + 1 :]]


def _heading(title: str, note: str) -> tuple[list[str], int]:
    """The title and the note, the latter over as many lines as it needs; and where to go on."""
    parts = [f'<text x="{EDGE}" y="28" class="title">{escape(title)}</text>']
    top = 36
    line = ""
    words = note.split()
    for word, following in pairwise([*words, ""]):
        line = f"{line} {word}".strip()
        if not following or _width(f"{line} {following}") > WIDTH - 2 * EDGE:
            parts.append(f'<text x="{EDGE}" y="{top + 12}" class="faint">{escape(line)}</text>')
            top += 17
            line = ""
    return parts, top + 8


def _legend(keys: Sequence[tuple[str, float, str]], top: int) -> tuple[list[str], int]:
    """A square and words for each key, in as many lines as they need."""
    parts: list[str] = []
    at = float(EDGE)
    for colour, shade, words in keys:
        if at > EDGE and at + 18 + _width(words) > WIDTH - EDGE:
            at, top = float(EDGE), top + 18
        parts.append(
            f'<rect x="{at:.1f}" y="{top + 2}" width="11" height="11" fill="{colour}" fill-opacity="{shade}"/>'
            f'<text x="{at + 17:.1f}" y="{top + 12}" class="faint">{escape(words)}</text>'
        )
        at += 17 + _width(words) + 16
    return parts, top + (26 if keys else 0)


def _document(title: str, parts: Sequence[str], height: float, theme: Theme) -> str:
    style = (
        f"text {{ font: 12px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: {theme.text} }} "
        ".title { font-size: 15px; font-weight: 600 } .strong { font-weight: 600 } "
        f".faint {{ fill: {theme.faint} }} .grid {{ stroke: {theme.grid}; stroke-width: 1 }}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(title, {chr(34): "&quot;"})}">'
        f"<title>{escape(title)}</title><style>{style}</style>"
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="{theme.background}"/>' + "\n".join(parts) + "</svg>\n"
    )
