"""Every decoder bears a share of the hostile bytes that `make fuzz` gives it; and the fuzzer finds what it should."""

import asyncio
import json
import struct
import subprocess
import sys
import time
from typing import Any

import pytest
from proof.fuzz import Target, fuzz, run
from proof.fuzz.bytes import Source
from proof.fuzz.everything import all_targets

from accoda.payload import Codec, UnreadablePayload

TARGETS = all_targets()
SHARE = 4000


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_it_raises_nothing_but_its_own_error(target: Target, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
    report = fuzz([target], round(SHARE * target.share), seed=5)
    assert not report.crashes, str(report)
    tally = report.tallies[target.name]
    assert tally.decodes == round(SHARE * target.share)
    assert tally.accepted, "not one input was good: the seeds are no seeds"


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_good_input_is_accepted(target: Target) -> None:
    async def accept() -> None:
        for seed in target.seeds:
            if not seed.startswith(b"a0: &a0"):  # the bomb of aliases is no good input
                target.decode(seed)

    asyncio.run(accept())


def test_a_decoder_that_crashes_or_dawdles_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fragile(data: bytes) -> object:
        if data[:1] == b"\xdd":
            raise KeyError("boom")
        return json.loads(data)

    report = fuzz([Target("fragile", fragile, [b"[1, 2]"], (ValueError,), (b"\xdd",))], 5000, seed=1)
    assert report.crashes
    assert "KeyError: 'boom'" in str(report)
    assert "fragile: " in str(report)

    monkeypatch.setattr(run, "SLOW", 0.01)
    assert "took 0." in str(fuzz([Target("slow", lambda data: time.sleep(0.02), [b"x"])], 1))


def test_the_same_seed_gives_the_same_bytes_and_another_gives_others() -> None:
    def some(seed: int) -> list[bytes]:
        source = Source(seed)
        return [source.next([b"abcdef", b"\x93\x01\x02\x03"], [b"token"]) for _ in range(500)]

    assert some(1) == some(1)
    assert some(1) != some(2)
    assert len(set(some(1))) > 300


def test_the_command_prints_its_figures_and_its_exit_tells_of_crashes() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "proof.fuzz", "--decodes", "600", "--seed", "1", "--only", "payload"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert "payload: struct" in ended.stdout
    assert "600 decodes, crashes 0" in ended.stdout


def test_colliding_keys_cost_no_seconds() -> None:
    """Keys that are pairs of numbers with one hash: 13,000 of them would take the decoder two seconds."""
    keys = colliding_pairs(2000)
    assert len({hash(key) for key in keys}) == 1
    entries = b"".join(
        b"\x92" + b"".join(b"\xd3" + struct.pack(">q", number) for number in key) + b"\xc0" for key in keys
    )
    with pytest.raises(UnreadablePayload, match="more than 1,000 keys of maps in it are lists"):
        Codec(Any).decode(b"\xde" + len(keys).to_bytes(2) + entries)


def colliding_pairs(count: int) -> list[tuple[int, int]]:
    """Python mixes the hashes of a tuple with fixed numbers, so the second can be solved for."""
    one, two, five, modulus = 11400714785074694791, 14029467366897019727, 2870177450012600261, 1 << 64
    found: list[tuple[int, int]] = []
    first = 0
    while len(found) < count:
        first += 1
        mixed = (five + first * two) % modulus
        mixed = ((mixed << 31 | mixed >> 33) % modulus) * one % modulus
        second = (12345 - mixed) * pow(two, -1, modulus) % modulus
        second -= modulus if second >= modulus // 2 else 0
        if abs(second) < (1 << 61) - 1 and second != -1:
            found.append((first, second))
    return found
