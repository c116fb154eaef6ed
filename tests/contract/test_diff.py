"""What a changed contract means: each change with its verdict, and the stored jobs that it would break."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from accoda import Bury, NewJob, open_storage
from accoda.cli.commands import accoda
from accoda.contract import parse
from accoda.contract.diff import Verdict, compare
from accoda.contract.wire import Wire, shape_of

SAFE, FIRST, BREAKS = Verdict.SAFE, Verdict.WORKERS_FIRST, Verdict.BREAKS

TO, SUBJECT, USER = "{name: to, type: string}", "{name: subject, type: string}", "{name: user_id, type: int64}"
NOTE = "{name: note, type: string, default: none}"
MAYBE = "{name: maybe, type: int, optional: true}"
SURELY = "{name: maybe, type: int, default: 1}"
BODY = '{name: body, type: "[]byte"}'
AGING, STRICT = "    policy: aging\n", "    policy: strict\n"
KEPT = "stored jobs keep their ranks, and run"


def queue(*fields: str, id: int = 1, name: str = "emails", more: str = "") -> str:
    lines = "".join(f"      - {field}\n" for field in fields)
    return f"  - id: {id}\n    name: {name}\n{more}    fields:\n{lines}"


def contract(*queues: str) -> str:
    return "queues:\n" + "".join(queues)


PLAIN = contract(queue(TO, SUBJECT, USER))
OTHER = queue(TO, id=2, name="other")

PAUSE = "    retry: 30s\n"
LANES = "    lanes: {limit: 2, limits: {a: null}, fair: true}\n"
TABLE: list[tuple[str, str, str, list[tuple[Verdict, str]]]] = [
    ("nothing", PLAIN, PLAIN, []),
    ("a description", PLAIN, contract(queue(TO, SUBJECT, USER, more="    description: New words\n")), []),
    ("int is int64", PLAIN, PLAIN.replace("int64", "int"), []),
    ("a new queue", PLAIN, PLAIN + OTHER, [(SAFE, "other: the queue is new")]),
    ("a queue is gone", PLAIN + OTHER, PLAIN, [
        (BREAKS, "other: the queue was removed; its jobs have no handler any more"),
    ]),
    ("a queue is renamed", PLAIN, PLAIN.replace("emails", "letters"), [
        (BREAKS, "emails: the queue was renamed to letters; jobs under the old name have no handler any more"),
    ]),
    ("another queue took its id", PLAIN, contract(queue(TO, SUBJECT, USER, id=2), queue(TO, id=1, name="other")), [
        (FIRST, "emails: its id is 2 now, was 1: settings and metrics use it"),
        (SAFE, "other: the queue is new"),
    ]),
    ("a field with a default at the end", PLAIN, contract(queue(TO, SUBJECT, USER, NOTE)), [
        (FIRST, "emails: field note is new, at the end; stored jobs get its default"),
    ]),
    ("an optional field at the end", PLAIN, contract(queue(TO, SUBJECT, USER, MAYBE)), [
        (FIRST, "emails: field maybe is new, at the end; stored jobs get its default"),
    ]),
    ("two fields at the end", PLAIN, contract(queue(TO, SUBJECT, USER, NOTE, MAYBE)), [
        (FIRST, "emails: field note is new, at the end; stored jobs get its default"),
        (FIRST, "emails: field maybe is new, at the end; stored jobs get its default"),
    ]),
    ("a field without a default at the end", PLAIN, contract(queue(TO, SUBJECT, USER, "{name: cc, type: string}")), [
        (BREAKS, "emails: field cc is new and has no default; give it one, or make it optional"),
    ]),
    ("a field in the middle", PLAIN, contract(queue(TO, "{name: cc, type: string}", SUBJECT, USER)), [
        (BREAKS, "emails: place 2 is cc now, was subject: add fields at the end only"),
        (BREAKS, "emails: place 3 is subject now, was user_id: add fields at the end only"),
        (BREAKS, "emails: field user_id is new and has no default; give it one, or make it optional"),
    ]),
    ("two fields change places", PLAIN, contract(queue(SUBJECT, TO, USER)), [
        (BREAKS, "emails: place 1 is subject now, was to: add fields at the end only"),
        (BREAKS, "emails: place 2 is to now, was subject: add fields at the end only"),
    ]),
    ("the last field is gone", PLAIN, contract(queue(TO, SUBJECT)), [
        (FIRST, "emails: field user_id at the end was removed; stored jobs that have it are read without it"),
    ]),
    ("the last field, with a default, is gone", contract(queue(TO, NOTE)), contract(queue(TO)), [
        (SAFE, "emails: field note at the end was removed; stored jobs that have it are read without it"),
    ]),
    ("a field in the middle is gone", PLAIN, contract(queue(TO, USER)), [
        (BREAKS, "emails: place 2 is user_id now, was subject: add fields at the end only"),
        (FIRST, "emails: field user_id at the end was removed; stored jobs that have it are read without it"),
    ]),
    ("a field is renamed", PLAIN, PLAIN.replace("subject", "title"), [
        (SAFE, "emails: field subject was renamed to title; on the wire it has no name"),
    ]),
    ("a field is replaced", PLAIN, PLAIN.replace(SUBJECT, "{name: html, type: bool}"), [
        (BREAKS, "emails: field subject (string) was replaced by html (bool); add it at the end instead"),
    ]),
    ("a field is renamed and optional", PLAIN, PLAIN.replace(USER, "{name: user, type: int64, optional: true}"), [
        (FIRST, "emails: field user is optional now"),
        (SAFE, "emails: field user_id was renamed to user; on the wire it has no name"),
    ]),
    ("a type is another", PLAIN, PLAIN.replace("type: int64", "type: string"), [
        (BREAKS, "emails: field user_id is string now, was int64; add a new field instead"),
    ]),
    ("bytes become text", contract(queue(BODY)), contract(queue(BODY.replace('"[]byte"', "string"))), [
        (BREAKS, "emails: field body is string now, was []byte; add a new field instead"),
    ]),
    ("one becomes many", PLAIN, PLAIN.replace("type: int64", 'type: "[]int64"'), [
        (BREAKS, "emails: field user_id is []int64 now, was int64; add a new field instead"),
    ]),
    ("a type is wider", PLAIN, PLAIN.replace("type: int64", "type: float"), [
        (FIRST, "emails: field user_id is float now, which reads every int64 too (rounded beyond 2^53)"),
    ]),
    ("a type is narrower", PLAIN.replace("type: int64", "type: float"), PLAIN, [
        (BREAKS, "emails: field user_id is int64 now, was float; add a new field instead"),
    ]),
    ("it is optional now", PLAIN, PLAIN.replace("int64", "int64, optional: true"), [
        (FIRST, "emails: field user_id is optional now"),
    ]),
    ("it is not optional any more", contract(queue(TO, MAYBE)), contract(queue(TO, SURELY)), [
        (BREAKS, "emails: field maybe is not optional any more; stored jobs may have None there"),
        (SAFE, "emails: field maybe has another default; stored jobs that end before it get the new one"),
    ]),
    ("a default is added", contract(queue(TO, "{name: note, type: string}")), contract(queue(TO, NOTE)), []),
    ("a default is gone", contract(queue(TO, NOTE)), contract(queue(TO, "{name: note, type: string}")), [
        (BREAKS, "emails: field note has no default any more; stored jobs may end before it"),
    ]),
    ("a default is another", contract(queue(TO, NOTE)), contract(queue(TO, NOTE.replace("none", "some"))), [
        (SAFE, "emails: field note has another default; stored jobs that end before it get the new one"),
    ]),
    ("a setting", PLAIN, contract(queue(TO, SUBJECT, USER, more="    batch: 50\n")), [
        (SAFE, "emails: batch is 50 now, was the default"),
    ]),
    ("a pause", contract(queue(TO, more=PAUSE)), contract(queue(TO, more="    retry: {first: 2}\n    timeout: 5\n")), [
        (SAFE, 'emails: retry is {"first": 2.0} now, was 30.0'),
        (SAFE, "emails: timeout is 5.0 now, was the default"),
    ]),
    ("rules for lanes", contract(queue(TO, more="    lanes: 2\n")), contract(queue(TO, more=LANES)), [
        (SAFE, 'emails: lanes is {"limit": 2, "limits": {"a": null}, "fair": true} now, was {"limit": 2}'),
    ]),
    ("a policy", PLAIN, contract(queue(TO, SUBJECT, USER, more=AGING)), [
        (SAFE, f"emails: policy is aging now, was the default; {KEPT} before all new ones"),
    ]),
    ("a policy back", contract(queue(TO, more=AGING)), contract(queue(TO, more=STRICT)), [
        (SAFE, f"emails: policy is strict now, was aging; {KEPT} after all new ones"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_a_change_has_its_verdict(old: str, new: str, expected: list[tuple[Verdict, str]]) -> None:
    changes = compare(parse(old), parse(new))
    assert [(change.verdict, f"{change.queue}: {change.text}") for change in changes] == expected


@pytest.mark.parametrize(("old", "new", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_a_verdict_that_nothing_breaks_is_kept_by_the_code(
    old: str, new: str, expected: list[tuple[Verdict, str]]
) -> None:
    """The longest and the shortest payload that old producers could have stored are read by the new shape."""
    was, now = parse(old).queues[0], parse(new).queue(parse(old).queues[0].name)
    if now is None or any(verdict is BREAKS for verdict, _ in expected):
        return
    values = {"string": "x", "int64": 7, "int": 7, "float": 1.5, "[]byte": b"x"}
    full = [values[field.type.word] for field in was.fields]
    needed = [values[field.type.word] for field in was.fields if not field.has_default]
    wire = Wire(now.name, shape_of(now))
    for payload in (full, needed):
        assert wire.decode(wire.encode(payload)) is not None


def test_the_worst_comes_first() -> None:
    changes = compare(parse(PLAIN + OTHER), parse(contract(queue(SUBJECT, TO, USER, NOTE, more="    cost: 2\n"))))
    verdicts = [change.verdict for change in changes]
    assert verdicts == sorted(verdicts, reverse=True)
    assert {SAFE, FIRST, BREAKS} == set(verdicts)


class Files:
    """Two contracts and a store on disk, and the command over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'jobs.db'}"

    def diff(self, old: str, new: str, *more: str) -> tuple[int, list[str]]:
        (self.folder / "old.yaml").write_text(old)
        (self.folder / "new.yaml").write_text(new)
        words = ["contract", "diff", str(self.folder / "old.yaml"), str(self.folder / "new.yaml"), *more]
        done = CliRunner().invoke(accoda, words)
        return done.exit_code, done.output.splitlines()

    def store(self, *payloads: list[object]) -> None:
        """The first is left taken, the second is buried, the third is delayed, the others wait."""
        asyncio.run(self._store([msgspec.msgpack.encode(payload) for payload in payloads]))

    async def _store(self, payloads: list[bytes]) -> None:
        async with await open_storage(self.url) as store:
            await store.enqueue(
                [NewJob("emails", data, delay=60 if n == 2 else None) for n, data in enumerate(payloads)]
            )
            jobs = await store.take("emails", min(2, len(payloads)), lease=600)
            await store.settle([Bury(job.lease, "no reason") for job in jobs[1:]])


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.mark.parametrize(
    ("new", "code", "line"),
    [
        (PLAIN, 0, "nothing that matters has changed"),
        (PLAIN + OTHER, 0, "safe: other: the queue is new"),
        (contract(queue(TO, SUBJECT)), 1, "safe after deploy of workers: emails: field user_id at the end was removed"),
        (contract(queue(SUBJECT, TO, USER)), 2, "breaks stored jobs: emails: place 1 is subject now, was to"),
    ],
)
def test_the_exit_code_is_the_worst_verdict(files: Files, new: str, code: int, line: str) -> None:
    found, lines = files.diff(PLAIN, new)
    assert found == code
    assert lines[0].startswith(line)


STORED: list[list[object]] = [["a", "b", 1], ["a", "b", 2], ["a", "b", 3], ["a", "b", 4], ["a", "b", 5, "more"]]


def test_stored_jobs_that_break_are_counted_in_every_state(files: Files) -> None:
    files.store(*STORED)
    code, lines = files.diff(PLAIN, PLAIN.replace("type: int64", "type: string"), "--url", files.url)
    text = "breaks stored jobs: emails: field user_id is string now, was int64; add a new field instead"
    assert (code, lines) == (2, [f"{text} (5 stored now)"])


def test_only_jobs_that_really_break_are_counted(files: Files) -> None:
    old = contract(queue(TO, MAYBE))
    files.store(["a", 1], ["a", None], ["a"], ["a", 7], ["a", None])
    code, lines = files.diff(old, contract(queue(TO, "{name: maybe, type: int, default: 0}")), "--url", files.url)
    assert code == 2
    assert lines[0].endswith("stored jobs may have None there (2 stored now)")


def test_jobs_that_would_be_read_as_something_else_count_though_they_can_be_read(files: Files) -> None:
    files.store(*STORED)
    code, lines = files.diff(PLAIN, contract(queue(SUBJECT, TO, USER)), "--url", files.url)
    assert code == 2
    assert all(line.endswith("(5 stored now)") for line in lines)


def test_all_jobs_of_a_queue_that_is_gone_are_counted(files: Files) -> None:
    files.store(*STORED)
    code, lines = files.diff(PLAIN + OTHER, contract(OTHER), "--url", files.url)
    assert (code, lines) == (
        2,
        ["breaks stored jobs: emails: the queue was removed; its jobs have no handler any more (5 stored now)"],
    )


def test_what_would_break_jobs_is_less_bad_when_none_are_stored(files: Files) -> None:
    files.store()
    code, lines = files.diff(PLAIN, contract(queue(SUBJECT, TO, USER)), "--url", files.url)
    assert code == 1
    assert all(line.endswith("(0 stored now)") for line in lines)


def test_more_jobs_than_a_page_are_counted(files: Files) -> None:
    files.store(*([["a", "b", 1]] * 2500))
    _, lines = files.diff(PLAIN, PLAIN.replace("type: int64", "type: bool"), "--url", files.url)
    assert lines[0].endswith("(2,500 stored now)")


def test_a_program_reads_json(files: Files) -> None:
    files.store(*STORED)
    code, lines = files.diff(PLAIN, PLAIN.replace("type: int64", "type: bool") + OTHER, "--url", files.url, "--json")
    assert code == 2
    assert json.loads("".join(lines)) == [
        {
            "queue": "emails",
            "verdict": "breaks stored jobs",
            "text": "field user_id is bool now, was int64; add a new field instead",
            "stored": 5,
        },
        {"queue": "other", "verdict": "safe", "text": "the queue is new", "stored": None},
    ]


def test_nothing_to_compare_is_no_verdict(files: Files) -> None:
    code, lines = files.diff(PLAIN, "queues: []")
    assert (code, lines[0].endswith("new.yaml:1:9: queues is empty; there must be at least one queue")) == (3, True)
    code, lines = files.diff(PLAIN, PLAIN, "--url", files.url)
    assert (code, lines[0].startswith("Error: url: there is no file ")) == (3, True)
    assert not (files.folder / "jobs.db").exists()
    assert files.diff(PLAIN, PLAIN, "--url", "nonsense")[0] == 3
