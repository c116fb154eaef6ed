"""The page about the wire says what generated code does: every row of every table, both ways."""

import re
from collections.abc import Callable
from functools import cache
from math import isnan
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from accoda import ContractError
from accoda.contract import generate, parse
from accoda.contract.model import FIELD_TYPES

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()


def rows(head: str) -> list[tuple[str, ...]]:
    """The rows of the table with that head."""
    _, found, rest = PAGE.partition(f"| {head} |\n")
    assert found, head
    lines = rest.split("\n\n")[0].splitlines()[1:]
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]


def plain(cell: str) -> str:
    return cell.removeprefix("`").removesuffix("`")


def made(contract: str) -> SimpleNamespace:
    module = ModuleType("made_for_wire")
    scope: dict[str, Any] = module.__dict__
    exec(generate(parse(contract))["records.py"], scope)
    return SimpleNamespace(**scope)


@cache
def one_field(kind: str) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Write and read a value as the only field of a record."""
    word, _, rest = kind.replace("`", "").partition(", ")
    more = f", {rest}: true" if rest else ""
    code = made(f'queues: [{{id: 1, name: q, fields: [{{name: f, type: "{word}"{more}}}]}}]')
    return (
        lambda value: code.serialize_q(code.QJob(f=value)),
        lambda data: code.deserialize_q(data).f,
    )


def value_of(cell: str) -> Any:
    return eval(plain(cell), {"inf": float("inf"), "nan": float("nan")})


def bytes_of(cell: str, value: Any = ()) -> bytes:
    text = plain(cell)
    data = bytes.fromhex(text.rstrip("…"))
    return data[:-1] + data[-1:] * len(value) if text.endswith("…") else data


VALUES = rows("type | value | bytes")
OTHERS = rows("type | bytes | value")
REFUSED = rows("type | bytes | Accoda says")
GROWN = rows("payload | is read as")


@pytest.mark.parametrize("row", VALUES, ids=" ".join)
def test_a_value_has_its_bytes(row: tuple[str, ...]) -> None:
    kind, text, data = row
    write, read = one_field(kind)
    value = value_of(text)
    expected = b"\x91" + bytes_of(data, value)
    assert write(value) == expected
    found = read(expected)
    assert type(found) is type(value)
    assert repr(found) == repr(value) or (isinstance(value, float) and isnan(value) and isnan(found))


@pytest.mark.parametrize("row", OTHERS, ids=" ".join)
def test_another_form_of_a_value_is_read(row: tuple[str, ...]) -> None:
    kind, data, text = row
    value, found = value_of(text), one_field(kind)[1](b"\x91" + bytes_of(data))
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize("row", REFUSED, ids=" ".join)
def test_what_does_not_fit_is_refused_by_name(row: tuple[str, ...]) -> None:
    kind, data, words = row
    with pytest.raises(ContractError) as caught:
        one_field(kind)[1](b"\x91" + bytes_of(data))
    assert str(caught.value).startswith(f"q: field 'f': {words}")


@pytest.mark.parametrize("data", [b"", b"\x05", b"\xc0", b"\x81\xa1f\x05", b"\x91\x05\x00", b"\x92\x05", b"\x91"])
def test_a_payload_is_one_whole_array(data: bytes) -> None:
    with pytest.raises(ContractError):
        one_field("int")[1](data)


def contracts() -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_has_its_bytes() -> None:
    code = made(contracts()[0])
    lines = re.search(r"is 10 bytes:\n\n```\n(.*?)```", PAGE, re.DOTALL)
    assert lines is not None
    data = bytes.fromhex("".join(line.strip().split("  ")[0] for line in lines[1].splitlines()))
    assert len(data) == 10
    job = code.EmailsJob(to="a", subject="Hi", body=b"c", user_id=5)
    assert code.serialize_emails(job) == data
    assert code.deserialize_emails(data) == job


@pytest.mark.parametrize("row", GROWN, ids=" ".join)
def test_fields_that_come_and_go_are_read(row: tuple[str, ...]) -> None:
    data, text = row
    code = made(contracts()[1])
    assert code.deserialize_notes(bytes_of(data)) == code.NotesJob(**eval(f"dict({plain(text)})"))


def test_every_field_is_written_also_one_that_has_its_default() -> None:
    code = made(contracts()[1])
    assert code.serialize_notes(code.NotesJob(user_id=5)) == bytes.fromhex("93 05 c0 91 a3 6e6577")


def test_a_whole_number_in_the_place_of_a_float_is_written_as_it_was_given() -> None:
    write, read = one_field("float")
    assert (write(2), read(write(2))) == (b"\x91\x02", 2.0)


def test_every_type_is_in_every_table() -> None:
    for table in (VALUES, REFUSED):
        kinds = {plain(row[0]).split("`")[0] for row in table}
        assert kinds | {"int64", "[]int64"} == set(FIELD_TYPES)


def test_queues_that_are_called_like_generated_names_do_not_get_in_each_others_way() -> None:
    """Each name that is made from a queue's has a beginning or an end of its own."""
    names = ["a", "a_codec", "a_wire", "a_encode", "a_job", "a_shape", "a_queue", "a_handler", "batch", "dispatcher"]
    names += ["serialize_a", "deserialize_a", "codec_of_a", "encode_a", "record", "wire", "struct", "producer"]
    queues = [f"{{id: {n}, name: {name}, fields: [{{name: f, type: int}}]}}" for n, name in enumerate(names, 1)]
    files = generate(parse(f"queues: [{', '.join(queues)}]"))
    for text in files.values():
        made_here = re.findall(r"^(?:class|def) (\w+)|^(\w+) = ", text, re.MULTILINE)
        assert len(made_here) == len(set(made_here))
    code = made(f"queues: [{', '.join(queues)}]")
    for number, name in enumerate(names):
        read, write = getattr(code, f"deserialize_{name}"), getattr(code, f"serialize_{name}")
        record = read(bytes((0x91, number)))
        assert type(record).__name__ == "".join(part.capitalize() for part in name.split("_")) + "Job"
        assert write(record) == bytes((0x91, number))
        assert getattr(code, f"codec_of_{name}").decode(bytes((0x91, number))) == record
