"""Contracts: payloads for generated code, and files for the loader and the generator."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import msgspec

from accoda.contract import generate, parse
from accoda.errors import ContractError
from proof.fuzz.target import Target

CONTRACT = b"""\
description: What a contract can say.
queues:
  - id: 1
    name: emails
    description: One email.
    batch: 50
    lease: 1m30s
    fields:
      - {name: to, type: string, description: The address.}
      - {name: subject, type: string}
      - {name: body, type: "[]byte"}
      - {name: user_id, type: int64}
  - id: 2
    name: everything
    policy: aging
    max_attempts: 3
    cost: 0x10
    fields:
      - {name: a, type: int}
      - {name: b, type: bool}
      - {name: c, type: "[]int"}
      - {name: d, type: "[]int64"}
      - {name: e, type: float, default: 2}
      - {name: f, type: "[]string", default: [x, "it's"]}
      - {name: g, type: string, optional: true}
      - {name: h, type: "[]int", optional: true, default: null}
      - name: i
        type: "[]byte"
        default: >-
          some
          text
"""
_SEEDS: dict[str, list[list[Any]]] = {
    "emails": [["anna@home.example", "Hello", b"x" * 40, 2**40], ["", "ü\U0001f600", b"", -1, "an element more"]],
    "everything": [
        [1, True, [1, -2, 2**63 - 1], [], 2.5, ["a", "b"], None, [7, -(2**63)], b"z"],
        [-(2**63), False, [], list(range(20)), 3, [], "text"],
        [7, True, [], []],
    ],
}
_WORDS = [
    *b"queues id name fields type description optional default batch lease renew retry timeout policy cost".split(),
    *b"int int64 string bool []byte []int []int64 float []string strict aging null true no 0x7f 1e400".split(),
    *b'-1 9223372036854775808 job_id class __class__ self a" \\ \' """ { } [ ] & * ! | > % @ ` ? # ~'.split(),
    *b"&a *a !!binary !!python/object/apply:os.system <<: *a --- ...".split(),
    *(b": ", b"- ", b"\n", b"\n  - ", b"\n      - {name: ", b"\t", b"\r", b"\x00", b"\x85"),
    *("\u202e".encode(), "\ufeff".encode()),
]


def targets() -> list[Target]:
    """None where there is no PyYAML."""
    with contextlib.suppress(ModuleNotFoundError):
        import yaml  # noqa: F401

        return [*_records(), Target("contract file", _file, [CONTRACT], (ContractError,), _WORDS, 0.1)]
    return []


def _records() -> list[Target]:
    made = _made()
    found = []
    for queue, values in _SEEDS.items():
        seeds = [msgspec.msgpack.encode(value) for value in values]
        found.append(Target(f"contract record: {queue}", _reader(made, queue), seeds, (ContractError,)))
    return found


def _made() -> ModuleType:
    """The generated records, as a module that `typing` can find."""
    module = ModuleType("proof.fuzz.made_records")
    sys.modules[module.__name__] = module
    exec(compile(generate(parse(CONTRACT))["records.py"], module.__name__, "exec"), module.__dict__)
    return module


def _reader(made: ModuleType, queue: str) -> Callable[[bytes], object]:
    read, write = getattr(made, f"deserialize_{queue}"), getattr(made, f"serialize_{queue}")

    def read_and_write(data: bytes) -> object:
        job = read(data, 7, 1, 5)
        # What was read can be written, and that is read as the same. Bytes are compared: no NaN is equal to itself.
        try:
            written = write(job)
            same = write(read(written)) == written
        except ContractError as error:
            raise AssertionError("what was read cannot be written") from error
        assert same, "what was written is read as something else"
        return job

    return read_and_write


def _file(data: bytes) -> object:
    """A file that the loader takes must give code that is Python: `generate` parses what it wrote."""
    return generate(parse(data, "queues.yaml"))
