"""OnlineConf modules: read right, and whatever is wrong with one is a SettingsError and nothing else."""

import io
import struct
from pathlib import Path

import cdblib
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from accoda.errors import SettingsError
from accoda.settings import Settings, Value
from accoda.settings.entries import gather
from accoda.settings.onlineconf import read_cdb, read_conf, records

SHOP = ("shop",)


def cdb(values: dict[str, str]) -> bytes:
    """A module as the updater writes it; the first letter of a value is its type."""
    file = io.BytesIO()
    with cdblib.Writer(file) as writer:
        for key, value in values.items():
            writer.put(key.encode(), value.encode())
    return file.getvalue()


GOOD = {
    "/shop/worker/queue/default/max_processors": "s4",
    "/shop/worker/queue/emails/visibility_timeout": "s30s",
    "/shop/worker/queue/default/queue/7/batch_size": "s20",
    "/shop/worker/queue/sms": 'j{"batch_size": 3, "queue": {"sms": {"timeout": "2m"}}, "max_attempts": null}',
    "/shop/worker/queue/default": "s",
    "/shop/database/password": "ssecret",
    "/other/worker/queue/default/max_processors": "snonsense",
}
AS_TEXT = "\n".join(
    f"{key}:JSON {value[1:]}" if value[0] == "j" else f"{key} {value[1:]}" for key, value in GOOD.items()
)
CONF = f"# This file is made by a program\n#! Name shop\n#! Version 7\n\n{AS_TEXT}\n/motd first\nsecond line\n#EOF"


@pytest.mark.parametrize("name", ["shop.cdb", "shop.conf"])
def test_a_module_is_read_in_either_form(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(cdb(GOOD) if name.endswith("cdb") else CONF.encode())
    settings = Settings.load(tmp_path / name, service="shop", environ={})
    line = "" if name.endswith("cdb") else ":5"
    assert settings.worker("max_processors") == Value(4, f"onlineconf {tmp_path}/{name}{line}")
    assert settings.queue("emails", "visibility_timeout").value == 30
    assert settings.queue("emails", "batch_size", number=7).value == 20
    assert settings.queue("sms", "batch_size").value == 3
    assert settings.queue("sms", "timeout").value == 120
    assert settings.queue("sms", "max_attempts", code=9) == Value(9, "handler"), "null is absent"
    assert settings.problems == ()


def test_the_service_may_be_left_out_of_a_path(tmp_path: Path) -> None:
    module = {
        "/worker/queue/default/max_processors": "s4",
        "/shop/worker/queue/deals.deliver/batch_size": "s7",
        "/worker/queue/default/queue/deals.deliver/timeout": "s9",
    }
    (tmp_path / "shop.cdb").write_bytes(cdb(module))
    settings = Settings.load(tmp_path / "shop.cdb", service="shop", environ={})
    assert settings.worker("max_processors").value == 4
    assert settings.queue("deals.deliver", "batch_size").value == 7
    assert settings.queue("deals.deliver", "timeout").value == 9


def test_a_table_of_json_may_stand_above_the_queues() -> None:
    module = {"/shop/worker": 'j{"queue": {"default": {"grace": 5}}}'}
    assert [(entry.path, entry.raw) for entry in read_cdb(cdb(module), SHOP, "m")] == [
        (("shop", "worker", "queue", "default", "grace"), 5)
    ]


def test_an_unknown_setting_in_a_shared_tree_is_told_and_the_rest_is_used(tmp_path: Path) -> None:
    module = GOOD | {"/shop/worker/queue/emails/bach_size": "s3"}
    (tmp_path / "shop.cdb").write_bytes(cdb(module))
    settings = Settings.load(tmp_path / "shop.cdb", service="shop", environ={})
    assert settings.worker("max_processors").value == 4
    reason = "unknown setting 'bach_size' in worker/queue/emails, did you mean 'batch_size'?"
    assert settings.problems == (f"onlineconf {tmp_path}/shop.cdb: {reason}",)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("smany", "batch_size must be a whole number from 1 to 100000, not 'many'"),
        ("s", "not ''"),
        ("j{", "worker/queue/emails/batch_size is not valid JSON"),
        ("j" + "[" * 100_000, "is not valid JSON"),
        ("j[1]", "not a list"),
        ("x3", "has a value of type b'x'; known are 's' and 'j'"),
        ("", "has a value of type b''"),
    ],
)
def test_a_bad_value_is_named(tmp_path: Path, value: str, told: str) -> None:
    (tmp_path / "shop.cdb").write_bytes(cdb({"/shop/worker/queue/emails/batch_size": value}))
    with pytest.raises(SettingsError) as caught:
        Settings.load(tmp_path / "shop.cdb", service="shop", environ={})
    assert told in str(caught.value) and str(caught.value).startswith(f"onlineconf {tmp_path}/shop.cdb: ")


def test_the_first_of_equal_keys_counts_as_in_a_lookup(tmp_path: Path) -> None:
    file = io.BytesIO()
    with cdblib.Writer(file) as writer:
        for value in (b"s1", b"s2"):
            writer.put(b"/shop/worker/queue/default/grace", value)
    (tmp_path / "shop.cdb").write_bytes(file.getvalue())
    assert Settings.load(tmp_path / "shop.cdb", service="shop", environ={}).worker("grace").value == 1


def test_an_empty_database_is_a_good_one() -> None:
    assert read_cdb(cdb({}), SHOP, "m") == []
    assert list(records(bytes(2048), "m")) == []


@hypothesis_settings(deadline=None)
@given(st.dictionaries(st.binary(max_size=40), st.binary(max_size=40), max_size=20))
def test_every_record_that_was_written_is_read(pairs: dict[bytes, bytes]) -> None:
    file = io.BytesIO()
    with cdblib.Writer(file) as writer:
        for key, value in pairs.items():
            writer.put(key, value)
    assert list(records(file.getvalue(), "m")) == list(pairs.items())


def test_a_database_cut_off_anywhere_is_refused() -> None:
    whole = cdb(GOOD)
    tables = struct.unpack_from("<512I", whole)
    last = max(at + 8 * slots for at, slots in zip(tables[::2], tables[1::2], strict=True) if slots)
    for size in range(last):
        with pytest.raises(SettingsError, match="not a complete CDB file"):
            read_cdb(whole[:size], SHOP, "m")
    assert read_cdb(whole, SHOP, "m")


def test_a_module_in_text_cut_off_anywhere_is_refused() -> None:
    for size in range(len(CONF)):
        with pytest.raises(SettingsError, match="not complete: the last line of an OnlineConf module is #EOF"):
            read_conf(CONF[:size].encode(), SHOP, "m")
    assert read_conf(CONF.encode() + b"\r\n\n", SHOP, "m")


@hypothesis_settings(deadline=None)
@given(st.data())
def test_no_damage_to_a_database_raises_anything_else(data: st.DataObject) -> None:
    damaged = bytearray(cdb(GOOD))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(damaged) - 4))
        word = data.draw(st.one_of(st.binary(min_size=4, max_size=4), st.just(b"\xff" * 4), st.just(bytes(4))))
        damaged[at : at + 4] = word
    _reads_or_refuses(read_cdb, bytes(damaged))


@hypothesis_settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_no_bytes_at_all_raise_anything_else(tail: bytes, at: int, slots: int) -> None:
    _reads_or_refuses(read_cdb, tail)
    _reads_or_refuses(read_cdb, bytes(2048) + tail)
    _reads_or_refuses(read_cdb, struct.pack("<II", at, slots) * 256 + tail)
    _reads_or_refuses(read_conf, tail)
    _reads_or_refuses(read_conf, tail + b"\n#EOF")


PARTS = [
    "/",
    ".",
    "shop",
    "worker",
    "queue",
    "default",
    "batch_size",
    ":JSON",
    " ",
    "{",
    "}",
    "[",
    '"',
    "1",
    "\n",
    "\0",
    "é",
]


@hypothesis_settings(deadline=None)
@given(st.lists(st.sampled_from(PARTS)).map("".join))
def test_no_line_of_a_module_raises_anything_else(line: str) -> None:
    for root in ("", "/shop/worker/queue/", "worker.queue."):
        _reads_or_refuses(read_conf, f"{root}{line}\n#EOF".encode())
        _reads_or_refuses(read_cdb, cdb({root + line: "s1", line: "j" + line}))


def _reads_or_refuses(read: object, data: bytes) -> None:
    try:
        found = gather(read(data, SHOP, "m"), SHOP, "m", shared=True)  # type: ignore[operator]
        assert all(value.source.startswith("onlineconf m") for value in found.values.values())
    except SettingsError as error:
        assert str(error).removeprefix("onlineconf ").startswith("m")
