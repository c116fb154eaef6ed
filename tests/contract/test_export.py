"""Code first: the contract of handlers that were declared with types."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta, Struct

from accoda import App, Batch, ContractError, Lanes
from accoda.contract import Contract, Field, Queue, QueueSettings, generate, load, parse
from accoda.contract.diff import compare
from accoda.contract.export import export, write
from accoda.contract.model import FIELD_TYPES


class Email(Struct, array_like=True):
    to: str
    body: bytes
    user_id: int
    urgent: bool = False
    cc: list[str] = []
    price: float = 2.5
    note: str | None = None
    word: str = 'say "no"'
    raw: bytes = "ä".encode()


@dataclass
class Visit:
    user: int
    pages: list[int] = field(default_factory=lambda: [1, 2])


class Row(TypedDict):
    id: Annotated[int, Meta(ge=0)]
    comment: NotRequired[str]
    all_of_them: bool


def test_structs_dataclasses_and_typed_dicts_become_queues() -> None:
    app = App("memory://")

    @app.handler("emails", number=7, batch=50, lease=30, max_attempts=3, policy="aging", cost=2)
    async def send(batch: Batch[Email]) -> None:
        """Send emails.

        One after the other: "slowly".
        """

    @app.handler("visits")
    async def visit(visit: Visit) -> None: ...

    @app.handler("rows", lanes=Lanes(limit=2, limits={"vip": None}))
    def row(row: Row) -> None: ...

    text, notes = export(app.handlers)
    assert (
        text
        == """\
queues:
  - id: 7
    name: emails
    description: "Send emails. One after the other: \\"slowly\\"."
    batch: 50
    lease: 30
    max_attempts: 3
    policy: aging
    cost: 2
    fields:
      - {name: to, type: string}
      - {name: body, type: "[]byte"}
      - {name: user_id, type: int64}
      - {name: urgent, type: bool, default: false}
      - {name: cc, type: "[]string", default: []}
      - {name: price, type: float, default: 2.5}
      - {name: note, type: string, optional: true}
      - {name: word, type: string, default: "say \\"no\\""}
      - {name: raw, type: "[]byte", default: "ä"}
  - id: 1
    name: visits
    fields:
      - {name: user, type: int64}
      - {name: pages, type: "[]int64", default: [1, 2]}
  - id: 2
    name: rows
    lanes: {"limit": 2, "limits": {"vip": null}}
    fields:
      - {name: id, type: int64}
      - {name: all_of_them, type: bool}
      - {name: comment, type: string, optional: true}
"""
    )
    maps = "its jobs are stored as maps now, and generated code reads arrays: let the queue run empty first"
    assert [note.split(", or declare")[0] for note in notes] == [
        f"visits: {maps}",
        f"rows: {maps}",
        "rows: field 'comment' may be left out now; in a record it is None then",
    ]


def test_an_exported_contract_gives_code_that_reads_the_stored_jobs() -> None:
    """The bytes of an array-like struct are those of the generated record."""
    app = App("memory://")

    @app.handler("emails")
    async def send(email: Email) -> None: ...

    text, notes = export(app.handlers)
    assert notes == []
    scope: dict[str, Any] = {"__name__": __name__}
    exec(generate(parse(text))["records.py"], scope)
    stored = msgspec.msgpack.encode(Email("anna", b"\xff", -5, cc=["x"]))
    job = scope["deserialize_emails"](stored)
    assert (job.to, job.body, job.user_id, job.cc, job.price, job.note) == ("anna", b"\xff", -5, ["x"], 2.5, None)
    assert scope["serialize_emails"](job) == stored


SHOP = Path(__file__).parents[2] / "examples" / "shop"


def test_generated_code_exports_the_contract_that_it_was_made_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SHOP))
    from shop.app import app

    text, notes = export(app.handlers)
    assert notes == []
    assert compare(load(SHOP / "contracts" / "queues.yaml"), parse(text)) == []


class Nested(Struct):
    email: Email
    names: dict[str, int]
    either: int | str


class Bytes(Struct):
    raw: bytes = b"\xff"


def test_what_a_contract_cannot_say_is_told_all_at_once() -> None:
    app = App("memory://")

    @app.handler("plain")
    async def plain(payload) -> None: ...  # type: ignore[no-untyped-def]

    @app.handler("numbers")
    async def numbers(payload: int) -> None: ...

    @app.handler("nested")
    async def nested(payload: Nested) -> None: ...

    @app.handler("bytes_")
    async def raw(payload: Bytes) -> None: ...

    with pytest.raises(ContractError) as caught:
        export(app.handlers)
    known = "a contract knows int, str, bool, bytes, float, list[int] and list[str], each also with | None"
    declare = "declare a msgspec.Struct, dataclass or TypedDict"
    assert list(caught.value.problems) == [
        f"plain: its payload is Any; {declare}",
        f"numbers: its payload is int; {declare}",
        f"nested: field 'email' is Email; {known}",
        f"nested: field 'names' is dict[str, int]; {known}",
        f"nested: field 'either' is int | str; {known}",
        "bytes_: field 'raw': a default of bytes must be UTF-8; make it optional instead",
    ]


def test_an_app_without_handlers_has_no_contract() -> None:
    with pytest.raises(ContractError, match="the app has no handlers"):
        export(App("memory://").handlers)


def test_names_that_a_contract_does_not_allow_are_told_by_its_own_rules() -> None:
    app = App("memory://")

    @app.handler("new-orders")
    async def orders(visit: Visit) -> None: ...

    with pytest.raises(ContractError, match="'new-orders' is no name of a queue"):
        export(app.handlers)


class Renamed(Struct, array_like=True, rename="camel"):
    user_id: int


def test_names_are_those_of_python_not_those_of_the_wire() -> None:
    app = App("memory://")

    @app.handler("renamed")
    async def handle(payload: Renamed) -> None: ...

    assert "{name: user_id, type: int64}" in export(app.handlers)[0]


def test_the_command_prints_the_contract_and_notes_beside_it(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(
        "from dataclasses import dataclass\nfrom accoda import App\n\napp = App('memory://')\n\n\n"
        "@dataclass\nclass Visit:\n    user: int\n\n\n"
        "@app.handler('visits')\nasync def visit(visit: Visit) -> None: ...\n"
    )
    command = [sys.executable, "-m", "accoda", "contract", "export", "jobs:app"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout == "queues:\n  - id: 1\n    name: visits\n    fields:\n      - {name: user, type: int64}\n"
    assert done.stderr.startswith("Note: visits: its jobs are stored as maps now")


TEXT = st.text(max_size=20)
INT64 = st.integers(-(2**63), 2**63 - 1)
DEFAULTS: dict[str, st.SearchStrategy[Any]] = {
    "int": INT64,
    "int64": INT64,
    "string": TEXT,
    "bool": st.booleans(),
    "[]byte": TEXT.map(str.encode),
    "[]int": st.lists(INT64, max_size=2),
    "[]int64": st.lists(INT64, max_size=2),
    "float": st.floats(-1e299, 1e299),
    "[]string": st.lists(st.text(max_size=5), max_size=2),
}


LANE_NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5).filter(str.isprintable)
RULES = st.builds(
    Lanes,
    limit=st.none() | st.integers(0, 10_000),
    limits=st.dictionaries(LANE_NAMES, st.none() | st.integers(0, 10_000), max_size=3),
    weights=st.dictionaries(LANE_NAMES, st.sampled_from((0.5, 1000, 3)), max_size=2),
    by_cost=st.booleans(),
    total=st.none() | st.integers(0, 9),
    shared=st.sampled_from((None, "github", "a.b-c", "no", "1")),
)


@st.composite
def fields(draw: st.DrawFn) -> tuple[Field, ...]:
    words = draw(st.lists(st.sampled_from(list(DEFAULTS)), min_size=1, max_size=6))
    return tuple(
        Field(f"f{number}", FIELD_TYPES[word], draw(TEXT), draw(st.booleans()), draw(DEFAULTS[word]))
        for number, word in enumerate(words)
    )


@settings(max_examples=200, deadline=None)
@given(fields(), TEXT, st.sampled_from(["strict", "aging", None]), st.none() | RULES)
def test_what_is_written_is_read_as_the_same(
    fields: tuple[Field, ...], about: str, policy: str | None, lanes: Lanes | None
) -> None:
    about = " ".join(about.split())
    queues = (Queue(1, "no", fields, about, QueueSettings(policy=policy, lease=1.5, lanes=lanes)),)
    contract = Contract(queues, about)
    try:
        found = parse(write(contract))
    except ContractError as error:
        assert "the default is longer than" in str(error)
    else:
        assert found == contract
