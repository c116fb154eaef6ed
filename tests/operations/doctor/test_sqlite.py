"""SQLite files that are missing, foreign, old or in a bad place: told, and never touched."""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import pytest

from accoda import App, NewJob, open_storage
from accoda.operations.doctor import Finding, examine, worst
from accoda.operations.doctor.sqlite import file_system, look
from accoda.storage.sqlite.clock_steps import HostClock, boot_time, find_boot_id


def one(findings: Sequence[Finding], what: str) -> Finding:
    found = [each for each in findings if each.what == what]
    assert len(found) == 1, findings
    return found[0]


def levels(findings: Sequence[Finding]) -> dict[str, str]:
    return {each.what: each.level for each in findings}


async def made(path: Path) -> str:
    url = f"sqlite:///{path}"
    async with App(url) as app:
        await app.storage.enqueue([NewJob("emails")])
    return url


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


async def test_a_file_that_is_not_there_is_told_and_not_made(tmp_path: Path) -> None:
    found = await examine(f"sqlite:///{tmp_path / 'jobs.db'}")
    assert one(found, "store").level == "problem" and "accoda migrate sqlite:///" in one(found, "store").advice
    assert contents(tmp_path) == {}


async def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    found = one(await examine(f"sqlite:///{tmp_path / 'none' / 'jobs.db'}"), "folder")
    assert found.level == "problem" and found.advice == f"mkdir -p {tmp_path / 'none'}"
    assert one(await examine(f"sqlite:///{tmp_path}"), "file").level == "problem"


async def test_a_good_store_is_well(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    url = await made(path)
    path.chmod(0o600)
    found = await examine(url)
    assert levels(found) | {"file system": "ok", "disk": "ok"} == {
        "versions": "ok",
        "driver": "ok",
        "library": "ok",
        "durability": "ok",
        "disk": "ok",
        "file system": "ok",
        "layout": "ok",
        "journal": "ok",
        "queues": "ok",
        "queue": "warning",
    }
    assert "'emails' has 1 ready job" in one(found, "queue").found


async def test_an_old_layout_is_told_and_not_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    url = await made(path)
    with apsw.Connection(str(path)) as connection:
        connection.execute("PRAGMA user_version = 0")
    connection.close()
    before = contents(tmp_path)
    found = await examine(url)
    assert one(found, "layout").level == "problem" and "accoda migrate" in one(found, "layout").advice
    assert contents(tmp_path) == before
    assert not {"queues", "store"} & levels(found).keys(), "it was not opened: that would have upgraded it"


async def test_a_newer_layout_is_told(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    url = await made(path)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert "newer Accoda" in one(await examine(url), "layout").found


async def test_the_layout_is_read_from_the_log_of_a_store_that_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    url = f"sqlite:///{path}"
    async with App(url) as app:
        await app.storage.enqueue([NewJob("emails")])
        assert path.with_name("jobs.db-wal").exists(), "what was migrated may be in the log alone"
        found = await examine(url)
        assert one(found, "layout").level == "ok"
        assert len(await app.storage.take("emails", 9)) == 1


@pytest.mark.parametrize("left", [("-wal", "-shm"), ("-wal",)])
async def test_what_a_killed_process_left_is_read_and_kept(tmp_path: Path, left: tuple[str, ...]) -> None:
    path, copy = tmp_path / "jobs.db", tmp_path / "copy" / "jobs.db"
    copy.parent.mkdir()
    async with App(f"sqlite:///{path}") as app:
        await app.storage.enqueue([NewJob("emails")])
        for ending in ("", *left):  # as they are on the disk in this moment, with all of it in the log
            shutil.copy(f"{path}{ending}", f"{copy}{ending}")
    before = contents(copy.parent)
    found = await look(urlsplit(f"sqlite:///{copy}"), "")
    assert one(found.findings, "layout").level == "ok" and found.usable
    after = contents(copy.parent)
    assert after["jobs.db"] == before["jobs.db"] and after["jobs.db-wal"] == before["jobs.db-wal"]


async def test_a_step_of_the_clock_is_told_for_a_day(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    url = f"sqlite:///{path}"
    ahead = [0]
    clock = HostClock(lambda: time.time_ns() + ahead[0], boot_time, find_boot_id() or "here")
    async with await open_storage(url, clock=clock) as store:
        await store.stats()
        assert "clock" not in levels(await examine(url))
        ahead[0] = 3600 * 10**9
        await store.stats()
    found = one((await look(urlsplit(url), "")).findings, "clock")
    assert found.level == "warning" and "set forward by 3600.0 s: leases were moved" in found.found
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE host_clock SET stepped_at = stepped_at - 2 * 86400000")
    connection.close()
    assert "clock" not in levels((await look(urlsplit(url), "")).findings)


async def test_files_of_others_are_reported_and_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "other.db"
    connection = apsw.Connection(str(foreign))
    connection.execute("CREATE TABLE theirs (id)")
    connection.close()
    text = tmp_path / "text.db"
    text.write_text("no database at all, but long enough to have a header" * 20)
    before = contents(tmp_path)
    assert "another program" in one(await examine(f"sqlite:///{foreign}"), "file").found
    assert "is not a SQLite database" in one(await examine(f"sqlite:///{text}"), "file").found
    assert contents(tmp_path) == before


async def test_durability_fast_is_a_note(tmp_path: Path) -> None:
    url = await made(tmp_path / "jobs.db")
    found = one(await examine(f"{url}?durability=fast"), "durability")
    assert found.level == "note" and "durability=fast" in found.advice
    assert one(await examine(f"{url}?speed=1"), "url").level == "problem"


async def test_a_file_that_everybody_may_read_is_a_note(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    url = await made(path)
    path.chmod(0o644)
    found = one(await examine(url), "permissions")
    assert found.found == "every user of this machine may read jobs.db" and "chmod o-rwx" in found.advice


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_folder_that_may_not_be_written_is_a_problem(tmp_path: Path) -> None:
    url = await made(tmp_path / "jobs.db")
    tmp_path.chmod(0o500)
    try:
        assert one(await examine(url), "folder").level == "problem"
    finally:
        tmp_path.chmod(0o700)


async def test_a_network_file_system_is_found_in_the_list_of_mounts(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\ntmpfs /elsewhere tmpfs rw 0 0\n")
    assert file_system(tmp_path, mounts) == "nfs4"
    assert file_system(Path("/"), mounts) == "ext4"
    assert file_system(tmp_path, tmp_path / "none") == ""


async def test_memory_and_nonsense_are_told() -> None:
    assert one(await examine("memory://"), "store").level == "note"
    assert worst(await examine("oracle://x")) == "problem"
