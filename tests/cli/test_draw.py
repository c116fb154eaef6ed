"""Tables and cards: what fits, what is cut, what never is."""

from collections.abc import Callable

import click
import msgspec
import pytest
from click.testing import CliRunner

from accoda.cli.draw import Column, Surroundings, card, columns_of, folded, json_text, progress, table


def drawn(draw: Callable[[], None], *, wide: int = 80, terminal: bool = False) -> str:
    command = click.Command("draw", callback=draw)
    around = Surroundings(None, wide, terminal)
    result = CliRunner().invoke(command, obj=around, color=True)
    assert result.exception is None, result.exception
    return result.output


def test_a_table_that_fits_is_as_wide_as_it_must_be() -> None:
    told = drawn(lambda: table(["id", Column("n", right=True)], [(1, "7"), (22, "1,000")]))
    assert told == "id      n\n1       7\n22  1,000\n"


@pytest.mark.parametrize("wide", [80, 60, 40])
def test_long_texts_are_cut_and_ids_are_not(wide: int) -> None:
    rows = [(2**63 - 1, "a queue with rather a long name", "word " * 50)]
    told = drawn(lambda: table(["id", Column("queue", cut=True), Column("what", cut=True)], rows), wide=wide)
    assert str(2**63 - 1) in told and "…" in told
    assert max(map(columns_of, told.splitlines())) <= wide


def test_wide_letters_take_two_columns_and_marks_none() -> None:
    told = drawn(lambda: table([Column("a", cut=True), "b"], [("列" * 60, "x"), ("e\u0301" * 3, "y")]))
    first, second = told.splitlines()[1:]
    assert columns_of(first) == columns_of(told.splitlines()[2][: len(second)]) == 80 or columns_of(first) == 80
    assert columns_of(second) == columns_of(first)


def test_what_could_move_the_cursor_or_colour_is_not_printed() -> None:
    told = drawn(lambda: table(["what"], [("a\x1b[2Jb\tc\nd\x07",)]))
    assert told == "what\na\ufffd[2Jb c d\ufffd\n"


def test_json_is_harmless_to_a_terminal_and_the_same_to_a_parser() -> None:
    value = {"a\x9b31m": "\x1b[2J\x7f\u202eb\u2066", "é列": "😀\u200d"}
    told = json_text(msgspec.json.encode(value))
    assert msgspec.json.decode(told) == value
    assert not {"\x9b", "\x1b", "\x7f", "\u202e", "\u2066"} & set(told)
    assert "é列" in told and "😀" in told


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def draw() -> None:
        table(["state"], [("dead",)])

    assert "\x1b[31mdead" in drawn(draw, terminal=True)
    assert "\x1b" not in drawn(draw)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in drawn(draw, terminal=True)


def test_a_card_leaves_out_what_is_not_known_and_folds_what_is_long() -> None:
    told = drawn(lambda: card("job 1", [("key", None), ("reason", "word " * 30), ("n", 0)]), wide=40)
    assert told.splitlines()[0] == "job 1"
    assert "key" not in told
    assert told.splitlines()[-1] == "  n       0"
    assert max(len(line) for line in told.splitlines()) <= 40


def test_folding_keeps_the_indent_and_loses_nothing() -> None:
    assert folded('    "a": "bcd efg"', 14) == ['    "a": "bcd', '    efg"']
    assert "".join(folded("x" * 100, 30)) == "x" * 100


def test_there_is_no_bar_without_a_terminal() -> None:
    def draw() -> None:
        with progress("Storing", 10) as so_far:
            so_far(10)

    assert drawn(draw) == ""
