"""`python -m benchmarks.contract`: generated code beside pydantic and beside msgspec written by hand.

The record is an email (`to`, `subject`, `body` of 200 bytes, `user_id`) with what every job has (`job_id`, `attempts`,
`prev_start_time`, which are not stored). One lap serializes it and reads it back. All ways take turns in short rounds;
a ratio is the median of the rounds' own ratios, so noise that lasts longer than a round hits both.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from accoda.contract import generate, parse

CONTRACT = """\
queues:
  - id: 1
    name: emails
    fields:
      - {name: to, type: string}
      - {name: subject, type: string}
      - {name: body, type: "[]byte"}
      - {name: user_id, type: int64}
"""
VALUES: dict[str, Any] = {
    "to": "anna.karlsson@mail.example",
    "subject": "Your order 10234 is on its way",
    "body": b"Dear Anna, " + b"x" * 189,
    "user_id": 1_234_567_890,
}
AT_LEAST_PYDANTIC = 5.0
AT_MOST_MSGSPEC = 1.2

Lap = Callable[[], object]

packer = msgspec.msgpack.Encoder()


class Row(Struct):
    """What was measured of one way: nanoseconds of a lap, and its length as a multiple of the generated code's."""

    name: str
    median: float
    best: float
    ratio: float


def generated() -> Lap:
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "generated_for_benchmark"
        package.mkdir()
        for name, text in generate(parse(CONTRACT)).items():
            (package / name).write_text(text)
        sys.path.insert(0, folder)
        made = import_module("generated_for_benchmark")
        sys.path.remove(folder)
    job, serialize, deserialize = made.EmailsJob(**VALUES), made.serialize_emails, made.deserialize_emails
    return lambda: deserialize(serialize(job), 7, 1, 1_700_000_000_000)


class Wire(Struct, array_like=True):
    to: str
    subject: str
    body: bytes
    user_id: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Email(Struct):
    job_id: int
    attempts: int
    prev_start_time: int | None
    to: str
    subject: str
    body: bytes
    user_id: int


unpacker = msgspec.msgpack.Decoder(Wire)


def by_hand() -> Lap:
    """As a careful engineer writes it: decoded into an array that is checked, then made the record. No check before."""
    job = Email(7, 1, None, **VALUES)

    def write(job: Email) -> bytes:
        return packer.encode((job.to, job.subject, job.body, job.user_id))

    def read(data: bytes, job_id: int, attempts: int, prev_start_time: int | None) -> Email:
        found = unpacker.decode(data)
        return Email(job_id, attempts, prev_start_time, found.to, found.subject, found.body, found.user_id)

    return lambda: read(write(job), 7, 1, 1_700_000_000_000)


def bare() -> Lap:
    """The array alone, without what every job has: the floor under all of them."""
    job, encode, decode = Wire(**VALUES), packer.encode, unpacker.decode
    return lambda: decode(encode(job))


def pydantic_ways() -> dict[str, Lap]:
    """As its documentation has it, over msgpack; the same through JSON; and as far as it can be sped up by hand."""
    from pydantic import BaseModel, Field

    class Model(BaseModel):
        job_id: int = Field(default=0, exclude=True)
        attempts: int = Field(default=0, exclude=True)
        prev_start_time: int | None = Field(default=None, exclude=True)
        to: str
        subject: str
        body: bytes
        user_id: int = Field(ge=-(2**63), le=2**63 - 1)

    job = Model(**VALUES)
    unpack = msgspec.msgpack.Decoder().decode
    meta = {"job_id": 7, "attempts": 1, "prev_start_time": 1_700_000_000_000}

    def dumped() -> Model:
        return Model.model_validate({**unpack(packer.encode(job.model_dump())), **meta})

    def through_json() -> Model:
        found = Model.model_validate_json(job.model_dump_json())
        found.job_id, found.attempts, found.prev_start_time = 7, 1, 1_700_000_000_000
        return found

    def sped_up() -> Model:
        to, subject, body, user_id = unpack(packer.encode((job.to, job.subject, job.body, job.user_id)))
        return Model(
            job_id=7, attempts=1, prev_start_time=1_700_000_000_000, to=to, subject=subject, body=body, user_id=user_id
        )

    return {
        "pydantic: model_dump, model_validate": dumped,
        "pydantic: model_dump_json, model_validate_json": through_json,
        "pydantic: an array by hand, then the model": sped_up,
    }


def measure(ways: dict[str, Lap], rounds: int, laps: int) -> list[Row]:
    """The first way is the one that the others are compared with."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            lap = ways[name]
            start = time.perf_counter_ns()
            for _ in range(laps):
                lap()
            times[name].append((time.perf_counter_ns() - start) / laps)
    first = times[names[0]]
    rows = []
    for name, found in times.items():
        # The first round warms up.
        ratios = [one / other for one, other in zip(found[1:], first[1:], strict=True)]
        rows.append(Row(name, statistics.median(found[1:]), min(found[1:]), statistics.median(ratios)))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.contract", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--laps", type=int, default=500, help="in each round")
    parser.add_argument("--json", action="store_true", help="for a program to read")
    given = parser.parse_args()
    try:
        beside = pydantic_ways()
    except ModuleNotFoundError:
        sys.exit("benchmarks.contract: needs pydantic; install it with: pip install 'accoda[dev]'")
    ways = {"generated": generated(), "msgspec by hand": by_hand(), "msgspec, bare array": bare(), **beside}
    rows = measure(ways, given.rounds, given.laps)
    if given.json:
        print(json.dumps([msgspec.to_builtins(row) for row in rows], indent=2))
    else:
        print(report(rows))
    return 0


def report(rows: list[Row]) -> str:
    lines = [
        "# Records of contracts",
        "",
        f"Serialize and deserialize an email; Python {platform.python_version()}, pydantic {version('pydantic')}, "
        f"msgspec {version('msgspec')}.",
        "",
        "| way | median | best | beside generated |",
        "| --- | ---: | ---: | ---: |",
        *(f"| {row.name} | {row.median:,.0f} ns | {row.best:,.0f} ns | {row.ratio:.2f} × |" for row in rows),
        "",
    ]
    by_name = {row.name: row for row in rows}
    pydantic = min(row.ratio for row in rows if row.name.startswith("pydantic"))
    documented = by_name["pydantic: model_dump, model_validate"].ratio
    msgspec_ratio = 1 / by_name["msgspec by hand"].ratio
    lines += [
        f"- {_word(documented >= AT_LEAST_PYDANTIC)}: {documented:.1f} times as fast as pydantic"
        f" ({pydantic:.1f} times, if only its validation is used); wanted: {AT_LEAST_PYDANTIC:.0f}",
        f"- {_word(msgspec_ratio <= AT_MOST_MSGSPEC)}: takes {msgspec_ratio:.2f} times as long as msgspec by hand;"
        f" wanted: {AT_MOST_MSGSPEC} at most",
    ]
    return "\n".join(lines)


def _word(met: bool) -> str:
    return "met" if met else "not met"


if __name__ == "__main__":
    sys.exit(main())
