"""Generated code: its looks, its types, its bytes, and what it does in an app."""

import ast
import importlib
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accoda import App, ContractError, InvalidInput, Lanes, NewJob
from accoda.contract import Contract, generate, parse
from accoda.contract.generator.code import literal
from accoda.contract.wire import shape_of

CONTRACT = """\
description: Everything that a contract can say.
queues:
  - id: 1
    name: emails
    description: One email to one person. "Quotes", \\ and {braces} do no harm; neither does a text so long that it must be broken into lines to fit.
    batch: 50
    lease: 30s
    fields:
      - {name: to, type: string, description: The address.}
      - {name: subject, type: string}
      - {name: body, type: "[]byte"}
      - {name: user_id, type: int64}
  - id: 2
    name: everything
    policy: aging
    cost: 3
    lanes: {limit: 2, total: 9, shared: github}
    fields:
      - {name: a, type: int}
      - {name: b, type: int64}
      - {name: c, type: string}
      - {name: d, type: bool}
      - {name: e, type: "[]byte"}
      - {name: f, type: "[]int"}
      - {name: g, type: "[]int64"}
      - {name: h, type: float, default: 2}
      - {name: i, type: "[]string", default: [x, "it's", 'say "no"', "both ' and \\""]}
      - {name: j, type: string, optional: true}
      - {name: k, type: "[]byte", default: "ä\\n"}
      - {name: options, type: "[]int", default: []}
      - {name: record, type: bool, default: true}
      - {name: m, type: "[]int", optional: true}
  - {id: 3, name: a_queue_with_a_name_of_the_longest_kind, max_attempts: 3, retry: {first: 2s}, fields: [
      {name: a_field_with_a_name_of_the_longest_kinds, type: int},
      {name: another_field_with_a_name_as_long_as_may, type: int},
      {name: a_default_with_a_name_of_the_longest_kin, type: "[]string", default: [aaaaaaaaaaaa, bbbbbbbbbbbb, ccccccccccc]},
      {name: a_text_as_a_default_that_is_long_itself, type: string, default: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}]}
  - {id: 6, name: rules, lanes: 3, fields: [{name: only, type: bool}]}
  - id: 7
    name: many_rules
    batch: 20
    lanes:
      fair: true
      limit: null
      limits: {"one's": 1, 'two "2"': 2, three: null, a-lane-with-a-name-that-is-long-enough: 4, another-lane-with-a-name-that-is-long: 5}
      weights: {gold: 3, 东京: 0.5}
    fields: [{name: only, type: bool}]
  - {id: 4, name: x2, fields: [{name: only, type: bool}]}
  - {id: 5, name: x10, fields: [{name: only, type: bool}]}
"""  # noqa: E501


@pytest.fixture(scope="module")
def contract() -> Contract:
    return parse(CONTRACT)


@pytest.fixture(scope="module")
def folder(contract: Contract, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    package = folder / "made_for_tests"
    package.mkdir()
    for name, text in generate(contract, "queues.yaml", aliases=True).items():
        (package / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def made(folder: Path) -> Iterator[Any]:
    sys.path.insert(0, str(folder))
    yield importlib.import_module("made_for_tests")
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.startswith("made_for_tests")]:
        del sys.modules[name]


def tool(*command: object, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)], cwd=folder, capture_output=True, text=True, timeout=120
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_the_same_contract_gives_the_same_bytes(contract: Contract) -> None:
    assert generate(contract, "q.yaml") == generate(parse(CONTRACT), "q.yaml")


def test_it_is_formatted_and_clean(folder: Path) -> None:
    rules = "--select=E,F,W,I,B,UP,SIM,RUF,ASYNC,RET,PERF,C4,PIE"
    assert tool("ruff", "check", "--isolated", "--line-length=120", rules, ".", folder=folder) == ""
    assert tool("ruff", "format", "--isolated", "--line-length=120", "--diff", ".", folder=folder) == ""


def test_it_has_types_that_a_checker_proves(folder: Path) -> None:
    assert tool("mypy", "--strict", "made_for_tests", folder=folder) == ""


def test_a_handler_of_the_wrong_type_is_caught(folder: Path) -> None:
    (folder / "wrong.py").write_text(
        "from accoda.contract import HandlerContext, JobStorage\n"
        "from made_for_tests import EmailsHandler, EverythingJob\n\n\n"
        "class Mine:\n"
        "    async def handle_emails(\n"
        "        self, ctx: HandlerContext, storage: JobStorage[EverythingJob], jobs: list[EverythingJob]\n"
        "    ) -> None: ...\n\n\n"
        "mine: EmailsHandler = Mine()\n"
    )
    answer = tool("mypy", "--strict", "wrong.py", folder=folder)
    assert "Incompatible types in assignment" in answer
    assert "handle_emails" in answer


def test_a_wrong_argument_of_a_producer_is_caught(folder: Path) -> None:
    (folder / "caller.py").write_text(
        "from accoda import App\n"
        "from made_for_tests import Queues\n\n\n"
        "async def main() -> None:\n"
        '    await Queues(App()).emails.enqueue(to="a", subject="b", body="no bytes", user_id=7)\n'
    )
    answer = tool("mypy", "--strict", "caller.py", folder=folder)
    assert 'Argument "body" to "enqueue" of "EmailsQueue" has incompatible type "str"; expected "bytes"' in answer


def test_records_begin_with_what_every_job_has(made: Any) -> None:
    assert made.EmailsJob.__struct_fields__[:3] == ("job_id", "attempts", "prev_start_time")
    job = made.EmailsJob(to="a", subject="b", body=b"c", user_id=5)
    assert (job.job_id, job.attempts, job.prev_start_time) == (0, 0, None)
    assert made.serialize_emails(job) == b"\x94\xa1a\xa1b\xc4\x01c\x05"
    again = made.deserialize_emails(b"\x94\xa1a\xa1b\xc4\x01c\x05", 7, 1, 123)
    assert again == made.EmailsJob(job_id=7, attempts=1, prev_start_time=123, to="a", subject="b", body=b"c", user_id=5)


INT64 = st.integers(-(2**63), 2**63 - 1)
EVERYTHING = st.fixed_dictionaries(
    {
        "a": INT64, "b": INT64, "c": st.text(), "d": st.booleans(), "e": st.binary(max_size=5000),
        "f": st.lists(INT64), "g": st.lists(INT64),
    },
    optional={
        "h": st.floats(allow_nan=False), "i": st.lists(st.text()), "j": st.none() | st.text(), "k": st.binary(),
        "options": st.lists(INT64), "record": st.booleans(), "m": st.none() | st.lists(INT64),
    },
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(values=EVERYTHING)
def test_every_type_makes_the_round_trip(made: Any, values: dict[str, Any]) -> None:
    job = made.EverythingJob(**values)
    data = made.serialize_everything(job)
    assert made.deserialize_everything(data) == job
    assert len(msgspec.msgpack.decode(data)) == 14


EDGES = [-(2**63), -(2**31) - 1, -33, -32, -1, 0, 127, 128, 255, 256, 2**31, 2**32, 2**63 - 1]


@pytest.mark.parametrize("number", EDGES)
def test_numbers_at_the_edges(made: Any, number: int) -> None:
    job = made.EmailsJob(to="", subject="\U0001f600", body=b"\0" * 70_000, user_id=number)
    assert made.deserialize_emails(made.serialize_emails(job)) == job


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("to", 5, "Expected `str`, got `int`"),
        ("to", None, "Expected `str`, got `None`"),
        ("to", "\ud800", "surrogates not allowed"),
        ("subject", object(), "Encoding objects of type object is unsupported"),
        ("body", "text", "Expected `bytes`, got `str`"),
        ("user_id", 2**63, "Expected `int` <= 9223372036854775807"),
        ("user_id", -(2**63) - 1, "can't serialize ints < -2**63"),
        ("user_id", 2**64, "can't serialize ints"),
        ("user_id", True, "Expected `int`, got `bool`"),
        ("user_id", 1.5, "Expected `int`, got `float`"),
        ("user_id", "7", "Expected `int`, got `str`"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(made: Any, field: str, value: object, words: str) -> None:
    good = {"to": "a", "subject": "b", "body": b"c", "user_id": 5}
    with pytest.raises(ContractError) as caught:
        made.serialize_emails(made.EmailsJob(**{**good, field: value}))
    assert str(caught.value).startswith(f"emails: field {field!r}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "emails: the payload is no array of its fields: Input data was truncated"),
        (b"\xc1", "emails: the payload is no array of its fields: "),
        (b"\x80", "emails: the payload is no array of its fields: Expected `array`, got `object`"),
        (b"\x94\xa1a\xa1b\xc4\x01c", "emails: field 'user_id': the payload ends before it"),
        (b"\x93\xa1a\xa1b\xc4\x01c", "emails: field 'user_id': the payload ends before it"),
        (b"\x94\xa1a\xa1b\xc4\x05c", "emails: field 'body': the payload ends within it"),
        (b"\x94\xa1a\xa1b\xa1c\x05", "emails: field 'body': Expected `bytes`, got `str`"),
        (b"\x94\xa1a\xa2b\xff\xc4\x01c\x05", "emails: field 'subject': "),
        (b"\x94\xa1a\xa1b\xc4\x01c\xcf" + b"\xff" * 8, "emails: field 'user_id': Expected `int` <= "),
        (b"\x94\xa1a\xa1b\xc4\x01c\xc1", "emails: field 'user_id': "),
        (b"\x94\xa1a\xa1b\xc4\x01c\x05\x05", "emails: the payload is no array of its fields: "),
        (b"\xdd\xff\xff\xff\xff", "emails: field 'to': the payload ends before it"),
    ],
)
def test_bytes_that_cannot_be_read_are_refused_by_name(made: Any, data: bytes, words: str) -> None:
    with pytest.raises(ContractError) as caught:
        made.deserialize_emails(data)
    assert str(caught.value).startswith(words)


def test_fields_that_were_added_read_old_jobs(made: Any) -> None:
    old = msgspec.msgpack.encode([1, 2, "c", True, b"e", [], []])
    job = made.deserialize_everything(old)
    assert (job.h, job.i, job.j, job.k, job.options, job.m) == (
        2.0, ["x", "it's", 'say "no"', "both ' and \""], None, "ä\n".encode(), [], None,
    )  # fmt: skip
    assert made.deserialize_everything(old).i is not job.i


def test_old_code_reads_jobs_with_more_fields(made: Any) -> None:
    assert made.deserialize_x2(msgspec.msgpack.encode([True, "new"])).only is True


def test_the_shape_made_at_run_time_is_the_one_that_is_written(made: Any, contract: Contract) -> None:
    everything = contract.queue("everything")
    assert everything is not None
    shape = shape_of(everything)
    data = msgspec.msgpack.encode([1, 2, "c", True, b"e", [], []])
    found, job = msgspec.msgpack.decode(data, type=shape), made.deserialize_everything(data)
    assert all(getattr(found, name) == getattr(job, name) for name in shape.__struct_fields__)


def test_random_bytes_are_read_or_refused(made: Any) -> None:
    chance = random.Random(5)
    good = made.serialize_emails(made.EmailsJob(to="anna", subject="b", body=b"c" * 20, user_id=5))
    for _ in range(20_000):
        data = bytearray(good if chance.random() < 0.7 else chance.randbytes(chance.randrange(40)))
        for _ in range(chance.randrange(4)):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            made.deserialize_emails(bytes(data[: chance.randrange(len(data) + 1)]))
        except ContractError as error:
            assert str(error).startswith("emails: ")


class Mine:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def handle_emails(self, ctx: Any, storage: Any, jobs: list[Any]) -> None:
        self.seen += jobs
        for job in jobs:
            if job.attempts == 0:
                storage.retry(job, delay=0)
            else:
                storage.done(job)


async def test_the_dispatcher_runs_what_the_producers_enqueue(made: Any, contract: Contract) -> None:
    mine = Mine()
    producer = App("memory://")  # knows no handler: the queue's line is all it needs
    queues = made.Queues(producer)
    told = await queues.emails.enqueue(to="a", subject="b", body=b"c", user_id=5)
    [job] = await producer.storage.take("emails", 1)
    assert job.data == b"\x94\xa1a\xa1b\xc4\x01c\x05"
    assert told.what == "created"

    app = made.dispatcher(made.Handlers(*(mine,) * 7), App("memory://"))
    assert app.handlers["emails"].options.batch == 50
    assert (app.handlers["everything"].options.cost, app.handlers["everything"].options.policy) == (3, "aging")
    assert app.handlers["everything"].options.lanes == Lanes(limit=2, total=9, shared="github")
    assert app.handlers["rules"].options.lanes == Lanes(limit=3)
    rules = contract.queue("many_rules")
    assert rules is not None and app.handlers["many_rules"].options.lanes == rules.settings.lanes
    assert rules.settings.lanes is not None and len(rules.settings.lanes.limits) == 5
    await made.Queues(app).emails.enqueue({"priority": 0}, to="a", subject="b", body=b"c", user_id=5)
    await made.Queues(app).emails.enqueue_many([made.EmailsJob(to="x", subject="", body=b"", user_id=1)])
    await app.run_until_idle(["emails"])
    assert [(job.to, job.attempts) for job in mine.seen] == [("a", 0), ("x", 0), ("a", 1), ("x", 1)]
    assert all(job.job_id for job in mine.seen)
    assert mine.seen[2].prev_start_time is not None


async def test_a_payload_of_another_kind_is_refused(made: Any) -> None:
    app = App("memory://")
    made.Queues(app)
    with pytest.raises(InvalidInput, match="must be a EmailsJob, not a dict"):
        await app.enqueue("emails", {"to": "a"})
    with pytest.raises(InvalidInput, match="field 'user_id'"):
        await app.enqueue("emails", made.EmailsJob(to="a", subject="b", body=b"c", user_id=2**63))


async def test_a_stored_payload_that_cannot_be_read_is_buried_by_name(made: Any) -> None:
    mine = Mine()
    app = made.dispatcher(made.Handlers(*(mine,) * 7), App("memory://"))
    [told] = await app.storage.enqueue([NewJob("emails", b"\x94\xa1a\x01")])
    await app.run_until_idle(["emails"])
    found = await app.find(told.id)
    assert found is not None
    assert found.reason is not None
    assert "emails: field 'subject'" in found.reason


@settings(max_examples=500, deadline=None)
@given(st.text() | st.binary() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans())
def test_a_literal_is_the_value(value: object) -> None:
    assert ast.literal_eval(literal(value)) == value
