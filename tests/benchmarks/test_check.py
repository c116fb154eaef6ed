"""The guard against slower code: what it says of made-up figures, and that it measures at all."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from benchmarks.check import __main__ as command
from benchmarks.check import verdict
from benchmarks.check.cases import measure
from benchmarks.check.verdict import Figure, is_slower, save, text

BEFORE = {"redis: enqueue, batch 1": 0.5}


def figure(ratio: float, name: str = "redis: enqueue, batch 1") -> Figure:
    return Figure(name, 1000 * ratio, 1000, ratio)


@pytest.mark.parametrize(
    ("ratio", "word"),
    [(0.39, "SLOWER"), (0.41, "as before"), (0.5, "as before"), (0.62, "as before"), (0.63, "faster: save it")],
)
def test_a_fifth_below_is_slower(ratio: float, word: str) -> None:
    assert word in text([figure(ratio)], BEFORE)
    assert is_slower(figure(ratio), BEFORE) == (word == "SLOWER")


def test_what_was_never_committed_is_new() -> None:
    assert "new" in text([figure(0.1, "redis: something else")], BEFORE)
    assert not is_slower(figure(0.1, "redis: something else"), BEFORE)


def test_without_committed_figures_it_says_how_to_make_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "COMMITTED", tmp_path / "check.json")
    with pytest.raises(SystemExit, match="--save"):
        verdict.committed()
    save([figure(0.5)])
    assert verdict.committed() == BEFORE


def test_the_committed_figures_name_what_is_measured() -> None:
    names = {each["name"] for each in json.loads(verdict.COMMITTED.read_text())}
    assert {"redis: fused, batch 100", "sqlite: enqueue, batch 1", "memory: worker, batch 100"} <= names


@pytest.mark.parametrize("storage", ["memory", "sqlite"])
async def test_every_case_is_measured_and_a_second_look_measures_only_what_it_is_asked_for(storage: str) -> None:
    found = [each async for each in measure(storage, None, 1)]
    assert len(found) == 7 and all(each.ratio > 0 for each in found)
    one = f"{storage}: worker, batch 100"
    assert [each.name async for each in measure(storage, [one], 1)] == [one]


async def test_what_seems_slower_is_looked_at_again_and_the_best_look_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [[figure(0.2)], [figure(0.3)], [figure(0.45)]]
    asked: list[object] = []

    async def look(storage: str, wanted: object = None, rounds: int = 1) -> list[Figure]:
        asked.append(wanted)
        return looks[len(asked) - 1]

    monkeypatch.setattr(command, "look", look)
    (found,) = await command.check("redis", BEFORE)
    assert found.ratio == 0.45 and asked == [None, list(BEFORE), list(BEFORE)]
