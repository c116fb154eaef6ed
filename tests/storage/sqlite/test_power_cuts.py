"""The power is cut under a SQLite store: what was acknowledged is there, and nothing is half there."""

import random
import subprocess
import sys

import apsw
import pytest
from proof.powercut import MUTANTS, Disk, Fuse, Plan, installed, replay, run_cuts
from proof.powercut.disk import SECTOR

CUTS = 300  # a share of what `make power-cuts` does


async def test_the_default_mode_loses_nothing_that_was_acknowledged_and_never_corrupts() -> None:
    found = await run_cuts(CUTS, Plan(100_000))
    assert found.told == []
    assert (found.lost, found.corrupt) == (0, 0)
    assert found.cuts >= CUTS
    assert found.acknowledged > 5 * CUTS
    assert found.fleeting > 0, "takes of this machine are not synced, and some were taken back"
    # In commits, in checkpoints, and with nothing going on.
    assert {"write -wal", "sync -wal", "write database", "sync database", "at rest"} <= set(found.where)


async def test_the_fast_mode_never_corrupts_and_loses_only_the_latest() -> None:
    # A store that had lost anything but the latest rounds would be in a state that never was, and count as corrupt.
    found = await run_cuts(CUTS // 3, Plan(200_000, "fast"))
    assert found.told == []
    assert found.corrupt == 0
    assert 0 < found.lost < found.acknowledged / 2


@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant != "none"])
async def test_a_sync_that_is_left_out_is_noticed(mutant: str) -> None:
    found = await run_cuts(60, Plan(1, "default", mutant))
    assert found.lost + found.corrupt > 0
    assert found.told


async def test_a_disk_that_lies_corrupts_in_the_fast_mode_too() -> None:
    assert (await run_cuts(60, Plan(1, "fast", "lying-disk"))).corrupt > 0


async def test_a_seed_is_the_same_life_in_every_process() -> None:
    here = await replay(Plan(42))
    again = await replay(Plan(42))
    assert here == again
    assert len(set(here.traces)) == here.cuts
    command = [sys.executable, "-m", "proof.powercut", "--mode", "default", "--seed", "42"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert told.splitlines()[:-1] == [f"cut {number}: {trace}" for number, trace in enumerate(here.traces, 1)]


async def test_what_the_command_line_finds_is_in_its_exit_code() -> None:
    command = [sys.executable, "-m", "proof.powercut", "--cuts", "12", "--mutant", "lying-disk"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "default: " in done.stdout
    assert "fast: " in done.stdout
    assert "again: python -m proof.powercut --mode MODE --seed SEED" in done.stdout


def test_the_vfs_leaves_no_trace_in_the_process() -> None:
    before = apsw.vfs_names()
    with installed():
        assert apsw.vfs_names()[0] == "accoda-power"
    assert apsw.vfs_names() == before


class TestDisk:
    """The model itself: a disk that forgets too little would prove nothing."""

    def cuts(self, disk: Disk, name: str = "f") -> set[bytes | None]:
        """What may be left of a file."""
        return {disk.survivor(random.Random(seed)).image().get(name) for seed in range(300)}

    def made(self, content: bytes = b"") -> Disk:
        return Disk({"f": content})

    def test_keeps_what_was_synced(self) -> None:
        disk = self.made(b"old")
        file = disk.open("f", log=False)
        disk.change("f", file, 0, b"new!")
        disk.sync("f", file)
        assert self.cuts(disk) == {b"new!"}

    def test_keeps_an_unsynced_write_or_not_and_may_turn_it_into_noise(self) -> None:
        disk = self.made(b"old")
        disk.change("f", disk.open("f", log=False), 0, b"new")
        assert disk.image() == {"f": b"new"}, "readers see it at once"
        left = self.cuts(disk)
        assert {b"old", b"new"} < left
        assert all(each is not None and len(each) == 3 for each in left)

    def test_loses_a_write_and_keeps_a_later_one(self) -> None:
        disk = self.made(b"old" + bytes(SECTOR) + b"old")
        file = disk.open("f", log=False)
        disk.change("f", file, 0, b"new")
        disk.change("f", file, SECTOR + 3, b"new")
        assert b"old" + bytes(SECTOR) + b"new" in self.cuts(disk)

    def test_tears_a_write_at_sectors(self) -> None:
        disk = self.made(b"o" * 2 * SECTOR)
        disk.change("f", disk.open("f", log=False), 0, b"n" * 2 * SECTOR)
        left = self.cuts(disk)
        assert {b"n" * SECTOR + b"o" * SECTOR, b"o" * SECTOR + b"n" * SECTOR} < left

    def test_never_harms_bytes_beside_a_write(self) -> None:
        disk = self.made(b"a" * 100 + b"o" * 100 + b"z" * 100)
        disk.change("f", disk.open("f", log=False), 100, b"n" * 100)
        for left in self.cuts(disk):
            assert left is not None
            assert left[:100] == b"a" * 100
            assert left[200:] == b"z" * 100

    def test_may_keep_the_length_of_a_file_that_grew_but_not_its_bytes(self) -> None:
        disk = self.made(b"old")
        disk.change("f", disk.open("f", log=False), 3, b"more")
        assert {b"old", b"oldmore", b"old" + bytes(4)} < self.cuts(disk)

    def test_forgets_a_truncation_or_not(self) -> None:
        disk = self.made(b"old")
        disk.change("f", disk.open("f", log=False), 1, None)
        assert self.cuts(disk) == {b"old", b"o"}

    def test_may_lose_a_new_file_though_it_was_synced(self) -> None:
        disk = Disk()
        file = disk.open("f", log=False)
        disk.change("f", file, 0, b"x")
        disk.sync("f", file)
        assert self.cuts(disk) == {None, b"x"}

    def test_keeps_a_new_log_from_its_first_sync_on_and_all_names_with_it(self) -> None:
        disk = Disk()
        disk.open("f", log=False)
        log = disk.open("f-wal", log=True)
        disk.sync("f-wal", log)
        assert self.cuts(disk) == {b""}
        assert self.cuts(disk, "f-wal") == {b""}

    def test_may_bring_back_a_deleted_file_unless_the_folder_was_synced(self) -> None:
        disk = self.made(b"old")
        disk.delete("f", sync_folder=False)
        assert self.cuts(disk) == {None, b"old"}
        disk = self.made(b"old")
        disk.delete("f", sync_folder=True)
        assert self.cuts(disk) == {None}

    def test_a_lying_one_says_that_it_synced(self) -> None:
        disk = self.made(b"old")
        disk.lies = frozenset({"database"})
        file = disk.open("f", log=False)
        disk.change("f", file, 0, b"new")
        disk.sync("f", file)
        assert b"old" in self.cuts(disk)

    def test_does_nothing_more_after_the_cut(self) -> None:
        disk = self.made(b"old")
        file = disk.open("f", log=False)
        disk.fuse = Fuse(1)
        disk.change("f", file, 0, b"1")
        for _ in range(2):
            with pytest.raises(apsw.IOError):
                disk.change("f", file, 0, b"2")
        assert disk.off
        assert disk.image() == {"f": b"1ld"}
