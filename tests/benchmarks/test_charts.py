"""Charts: well-formed, all words in them, nothing drawn outside."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.charts import DARK, LIGHT, WIDTH, Axis, Bar, Group, Series, Theme, bars, lines, save, short
from tests.benchmarks.drawn import SVG, words_of

GROUPS = [
    Group("Redis <7>", [
        Bar("Accoda & friends", [1.5, 30.0], "1.5 / 30 ms", "ours"),
        Bar("a peer with a setting that goes on for so long that it needs two lines", [4e3, 9e4], "4,000 / 90,000 ms"),
        Bar("early", [-3.0, 0.0], "-3 / 0 ms"),
        Bar("absent", [], "none"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("how", ["stacked", "range", "paired"])
@pytest.mark.parametrize("log", [False, True])
def test_bars_stay_within_the_drawing_and_say_everything(theme: Theme, how: str, log: bool) -> None:
    text = bars(
        "Title",
        GROUPS,
        note="a unit " * 40,
        legend={"ours": "Accoda"},
        shades=("p50", "p99"),
        how=how,
        log=log,
        theme=theme,
    )
    said = " ".join(words_of(text))
    for bar in GROUPS[0].bars:
        assert bar.label in said
        assert bar.text in said
    for rect in ElementTree.fromstring(text).iter(f"{SVG}rect"):
        assert float(rect.get("x", 0)) + float(rect.get("width", 0)) <= WIDTH
        assert float(rect.get("width", 0)) > 0


def test_longer_bars_are_for_greater_values() -> None:
    text = bars("T", [Group("g", [Bar("a", [10.0], "10"), Bar("b", [5.0], "5")])])
    first, second = [float(r.get("width", 0)) for r in ElementTree.fromstring(text).iter(f"{SVG}rect")][-2:]
    assert first == pytest.approx(2 * second, rel=0.01)


@pytest.mark.parametrize("log", [False, True])
def test_lines_have_a_colour_for_each_name_and_marks_that_cover_every_point(log: bool) -> None:
    series = [
        Series("Redis", [(1, 100.0), (8, 90_000.0)], "points"),
        Series("Redis", [(1, 120.0), (8, 80_000.0)], "dashed"),
        Series("SQLite", [(1, 70.0), (8, 35.0)]),
    ]
    text = lines("Growth", series, x=Axis("processes", log), y=Axis("jobs a second", log), note="dots: measured")
    said = words_of(text)
    assert [said.count(name) for name in ("Redis", "SQLite", "processes", "jobs a second")] == [1, 1, 1, 1]
    assert "100k" in said
    drawing = ElementTree.fromstring(text)
    dots = list(drawing.iter(f"{SVG}circle"))
    assert len(dots) == 4
    assert len({dot.get("fill") for dot in dots}) == 2
    assert all(0 < float(dot.get("cx", 0)) < WIDTH and float(dot.get("cy", 0)) > 0 for dot in dots)


def test_a_chart_is_saved_for_light_and_dark_pages(tmp_path: Path) -> None:
    paths = save(tmp_path, "some", lambda theme: bars("T", GROUPS, theme=theme))
    assert [path.name for path in paths] == ["some-light.svg", "some-dark.svg"]
    assert paths[0].read_text() != paths[1].read_text()


def test_numbers_are_short() -> None:
    assert [short(value) for value in (0, 0.25, 950, 12_500, 3_000_000, 2e9)] == [
        "0",
        "0.25",
        "950",
        "12.5k",
        "3M",
        "2G",
    ]
