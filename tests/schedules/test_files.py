"""Schedules from TOML files."""

from pathlib import Path

import pytest
from schedule_env import Env, every

from accoda.errors import SettingsError
from accoda.schedules import Changes, Schedule, apply, create, get, list_all, pause, put, read_toml

FILE = """
[schedules.nightly]
cron = "0 3 * * *"
tz = "Europe/Rome"
queue = "reports"
payload = {kind = "daily", pages = 12}
catch_up = "all"
catch_up_limit = 10
ends_at = 2030-01-01T00:00:00Z

[schedules.sweep]
every = "1h30m"
overlap = "skip"
maxRetries = 2
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "schedules.toml"
    file.write_text(text)
    return file


def test_a_file_is_read(tmp_path: Path) -> None:
    nightly, sweep = read_toml(write(tmp_path, FILE))
    assert (nightly.name, nightly.queue, nightly.cron, nightly.tz) == ("nightly", "reports", "0 3 * * *", "Europe/Rome")
    assert nightly.payload == {"kind": "daily", "pages": 12} and nightly.catch_up_limit == 10
    assert nightly.ends_at is not None and nightly.ends_at.year == 2030
    assert (sweep.queue, sweep.every, sweep.overlap, sweep.max_retries) == ("sweep", 5400.0, "skip", 2)
    assert {nightly.source, sweep.source} == {"file"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "schedules.toml: there is no [schedules.NAME] table in it"),
        ("schedules = 5", "there is no [schedules.NAME] table in it"),
        ("[schedules.a", "not valid TOML"),
        (
            "[schedules.a]\nevery = 5\n[other]\nx = 1",
            "schedules.toml: [other]: only [schedules.NAME] tables are read here",
        ),
        ("[schedules]\na = 5", "[schedules.a] schedules: must be a table"),
        ("[schedules.a]\nevry = 5", "[schedules.a] evry: there is no such key; did you mean every?"),
        ("[schedules.a]\nzzz = 5", "[schedules.a] zzz: there is no such key; there are queue, cron, tz, every"),
        ("[schedules.a]\nname = 'b'\nevery = 5", "[schedules.a] name: there is no such key"),
        ("[schedules.a]\nqueue = 'b'", "[schedules.a] cron: give one of the two"),
        ("[schedules.a]\ncron = '99 * * * *'", "[schedules.a] cron: '99 * * * *': bad minute"),
        ("[schedules.a]\nevery = 5\ncatch_up = 'no'", "[schedules.a] catch_up: must be one of skip, once, all"),
        ("[schedules.a]\nevery = 5\nstarts_at = 2030-01-01T00:00:00", "[schedules.a] starts_at: a datetime needs"),
        ("[schedules.a]\nevery = 5\ncatch_up_limit = 'x'", "[schedules.a] catch_up_limit: expected `int`"),
        ("[schedules.'a b']\nevery = 5", "[schedules.a b] name: must be 1 to 128 letters"),
        ("[schedules.a]\nevery = " + "[" * 5000, "nested too deep"),
        ("x = " + "9" * 5000, "not valid TOML"),
    ],
)
def test_a_mistake_is_reported_with_file_table_and_key(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError) as error:
        read_toml(write(tmp_path, text))
    assert says in str(error.value) and "schedules.toml: " in str(error.value)


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as error:
        read_toml(write(tmp_path, "[schedules.a]\nevery = 0\n[schedules.b]\ncron = 'x'\n[schedules.c]\nevery = 5"))
    assert len(error.value.problems) == 2


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="not valid TOML"):
        read_toml(tmp_path / "binary.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * (1 << 21))
    with pytest.raises(SettingsError, match="more than 1,048,576 bytes"):
        read_toml(tmp_path / "large.toml")


def of_file(*schedules: Schedule) -> list[Schedule]:
    from msgspec.structs import replace

    return [replace(schedule, source="file") for schedule in schedules]


async def test_applying_a_file_reports_each_schedule(env: Env) -> None:
    a, b = every(60, name="a"), every(60, name="b")
    assert await apply(env.store, of_file(a, b)) == Changes(created=("a", "b"))
    before = (await get(env.store, "a")).id
    b = every(90, name="b")
    assert await apply(env.store, of_file(a, b)) == Changes(unchanged=("a",), changed=("b",))
    assert (await get(env.store, "a")).id == before


async def test_prune_removes_only_schedules_from_files(env: Env) -> None:
    await create(env.store, every(60, name="by-hand"))
    await apply(env.store, of_file(every(60, name="a"), every(60, name="b")))
    assert await apply(env.store, of_file(every(60, name="a"))) == Changes(unchanged=("a",))
    assert await apply(env.store, of_file(every(60, name="a")), prune=True) == Changes(unchanged=("a",), removed=("b",))
    assert [view.name for view in await list_all(env.store)] == ["a", "by-hand"]


async def test_a_paused_schedule_stays_paused_unless_the_file_says_otherwise(env: Env) -> None:
    await apply(env.store, of_file(every(60)))
    await pause(env.store, "report")
    assert await apply(env.store, of_file(every(60))) == Changes(unchanged=("report",))
    assert await apply(env.store, of_file(every(90))) == Changes(changed=("report",))
    assert (await get(env.store, "report")).state == "paused"
    await put(env.store, every(90, source="file"))
    assert await apply(env.store, of_file(every(90, enabled=False))) == Changes(changed=("report",))
    assert (await get(env.store, "report")).state == "paused"


async def test_a_manual_change_is_undone_by_the_file(env: Env) -> None:
    await apply(env.store, of_file(every(60)))
    await put(env.store, every(5))
    assert await apply(env.store, of_file(every(60))) == Changes(changed=("report",))
