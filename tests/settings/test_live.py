"""A change in a file is in force at the next look; a broken file changes nothing, and says so."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import cdblib
import pytest

from accoda.settings import Settings, Snapshot, Value


def write(file: Path, text: str) -> None:
    """Replace a file as a careful program does."""
    fresh = file.with_name(file.name + ".tmp")
    fresh.write_text(text)
    fresh.rename(file)


def write_cdb(file: Path, path: str, value: str) -> None:
    fresh = file.with_name(file.name + ".tmp")
    with fresh.open("wb") as out, cdblib.Writer(out) as writer:
        writer.put(path.encode(), b"s" + value.encode())
    fresh.rename(file)


def toml(size: object) -> str:
    return f"[worker.queue.emails]\nbatch_size = {size}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write(tmp_path / "s.toml", toml(5))
    return tmp_path / "s.toml"


@pytest.fixture
def settings(file: Path) -> Settings:
    return Settings.load(file, environ={})


def size(settings: Settings) -> Value:
    return settings.queue("emails", "batch_size")


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, file: Path) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO, "accoda.settings")

    def take() -> list[str]:
        lines = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
        caplog.clear()
        return [line.replace(f"{file.parent}/", "") for line in lines]

    return take


def test_a_renamed_file_is_read_and_the_old_snapshot_stays_as_it_was(
    settings: Settings, file: Path, told: Callable[[], list[str]]
) -> None:
    before = settings.current
    write(file, "\n" + toml(6))
    assert size(settings).value == 5, "only a look changes anything"
    assert settings.refresh()
    assert size(settings) == Value(6, f"{file}:3")
    assert before.queue("emails", "batch_size").value == 5
    assert not settings.refresh()
    assert told() == ["INFO settings: worker/queue/emails/batch_size is now 6, was 5 (s.toml:3)"]


def test_a_file_written_in_place_is_read_even_within_one_tick_of_the_file_systems_clock(
    settings: Settings, file: Path
) -> None:
    for number in (6, 7, 8, 9) * 5:
        file.write_text(toml(number))
        settings.refresh()
        assert size(settings).value == number


def test_a_line_that_moved_is_no_change_but_its_source_is_right(settings: Settings, file: Path) -> None:
    write(file, "# a comment\n" + toml(5))
    assert not settings.refresh()
    assert size(settings) == Value(5, f"{file}:3")


def test_a_file_that_did_not_change_is_not_read_again(settings: Settings, file: Path) -> None:
    while settings.stale():  # a mark this young could stand for a later version too
        settings.refresh()
        time.sleep(0.01)
    before = settings.current
    assert not settings.refresh()
    os.utime(file)
    assert settings.stale()
    assert not settings.refresh(), "it was touched, and says what it said"
    assert settings.current is before


def test_a_value_that_is_taken_out_falls_back(settings: Settings, file: Path, told: Callable[[], list[str]]) -> None:
    write(file, "# nothing any more\n")
    assert settings.refresh()
    assert size(settings) == Value(10, "default")
    assert told() == ["INFO settings: worker/queue/emails/batch_size is no longer set (was 5, s.toml:2)"]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("[worker.queue\n", "s.toml:1: not valid TOML: Expected ']' at the end of a table declaration (column 14)"),
        (toml(0), "s.toml:2: batch_size must be a whole number from 1 to 100000, not 0"),
        (
            toml(9) + "bach_size = 1",
            "s.toml:3: unknown setting 'bach_size' in worker/queue/emails, did you mean 'batch_size'?",
        ),
        ("", "s.toml: the file is empty; to remove all settings, leave a comment in it"),
    ],
)
def test_a_broken_file_keeps_the_last_good_values_and_says_so_once(
    settings: Settings, file: Path, told: Callable[[], list[str]], broken: str, reason: str
) -> None:
    write(file, broken)
    for _ in range(3):
        assert not settings.refresh()
    assert size(settings) == Value(5, f"{file}:2")
    assert [problem.replace(f"{file.parent}/", "") for problem in settings.problems] == [reason]
    assert told() == [f"WARNING settings: {reason}; the last good values stay in force"]

    write(file, toml(7))
    assert settings.refresh()
    assert (size(settings).value, settings.problems) == (7, ())
    assert told()[0] == "INFO settings: s.toml is valid again and in force"


def test_each_new_way_to_break_it_is_told_and_the_mend_too_when_nothing_changed(
    settings: Settings, file: Path, told: Callable[[], list[str]]
) -> None:
    for text in (toml("'a'"), toml("'b'"), toml(5)):
        write(file, text)
        assert not settings.refresh()
    assert [line.split()[0] for line in told()] == ["WARNING", "WARNING", "INFO"]
    assert settings.problems == ()


def test_a_file_that_vanishes_keeps_its_values_and_may_come_back(
    settings: Settings, file: Path, told: Callable[[], list[str]]
) -> None:
    file.unlink()
    for _ in range(3):
        assert not settings.refresh()
    assert not settings.stale()
    assert (size(settings).value, settings.problems) == (5, (f"{file}: the file is gone",))
    write(file, toml(5))
    assert not settings.refresh()
    assert settings.problems == ()
    assert told() == [
        "WARNING settings: s.toml: the file is gone; the last good values stay in force",
        "INFO settings: s.toml is valid again and in force",
    ]


def test_a_folder_in_its_place_is_a_problem_that_passes(settings: Settings, file: Path) -> None:
    file.unlink()
    file.mkdir()
    assert not settings.refresh() and not settings.refresh()
    assert settings.problems == (f"{file}: not a file",)
    file.rmdir()
    write(file, toml(6))
    assert settings.refresh() and size(settings).value == 6


def test_a_broken_file_holds_up_no_other(tmp_path: Path, settings: Settings, file: Path) -> None:
    other = tmp_path / "other.yaml"
    write(other, "worker: {queue: {default: {grace: 1}}}")
    both = Settings.load([file, other], environ={})
    write(file, "broken")
    write(other, "worker: {queue: {default: {grace: 2}}}")
    assert both.refresh()
    assert (both.worker("grace").value, size(both).value, len(both.problems)) == (2, 5, 1)


def test_a_cdb_module_is_followed_and_survives_a_broken_one(tmp_path: Path) -> None:
    module, path = tmp_path / "shop.cdb", "/shop/worker/queue/default/max_processors"
    write_cdb(module, path, "4")
    settings = Settings.load(module, service="shop", environ={})
    write_cdb(module, path, "6")
    assert settings.refresh() and settings.worker("max_processors").value == 6
    module.write_bytes(module.read_bytes()[:-10])
    assert not settings.refresh() and settings.worker("max_processors").value == 6
    assert "not a complete CDB file" in settings.problems[0]
    write_cdb(module, path, "8")
    assert settings.refresh() and settings.worker("max_processors").value == 8


def test_a_link_that_is_turned_to_another_file_is_followed(tmp_path: Path) -> None:
    for version in (1, 2):
        (tmp_path / f"v{version}.toml").write_text(toml(version))
    link = tmp_path / "s.toml"
    link.symlink_to("v1.toml")
    settings = Settings.load(link, environ={})
    (tmp_path / "next").symlink_to("v2.toml")
    (tmp_path / "next").rename(link)
    assert settings.refresh() and size(settings).value == 2


@pytest.mark.parametrize("kind", ["toml", "cdb"])
async def test_watch_tells_of_each_change_and_lives_through_a_callback_that_fails(tmp_path: Path, kind: str) -> None:
    file, path = tmp_path / f"s.{kind}", "/accoda/worker/queue/emails/batch_size"

    def put(number: int) -> None:
        write(file, toml(number)) if kind == "toml" else write_cdb(file, path, str(number))

    put(1)
    settings = Settings.load(file, environ={})
    seen: asyncio.Queue[int] = asyncio.Queue()

    def changed(snapshot: Snapshot) -> None:
        seen.put_nowait(snapshot.queue("emails", "batch_size").value)
        raise RuntimeError("a callback that fails")

    watching = asyncio.create_task(settings.watch(every=0.01, changed=changed))
    for number in (2, 3):
        put(number)
        assert await asyncio.wait_for(seen.get(), 30) == number
        assert size(settings).value == number
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
