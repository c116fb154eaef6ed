"""Contracts that are right, and every way in which one can be wrong, with the place and the words of the answer."""

import json
from pathlib import Path

import pytest
from msgspec import UNSET

from accoda.contract import load, parse
from accoda.contract.loader import MOST_BYTES
from accoda.errors import ContractError
from accoda.model import Lanes
from accoda.retry import Exponential

GOOD = """\
queues:
  - id: 1
    name: emails
    fields:
      - {name: to, type: string}
      - {name: subject, type: string}
      - {name: body, type: "[]byte"}
      - {name: user_id, type: int64}
"""

HEAD = "queues:\n  - id: 1\n    name: emails\n    fields:\n"
FIELDS = "    fields:\n      - {name: to, type: string}\n"


def mistakes(text: str | bytes) -> list[str]:
    with pytest.raises(ContractError) as caught:
        parse(text, "q.yaml")
    return [str(problem).removeprefix("q.yaml:") for problem in caught.value.problems]


def test_the_contract_of_the_design_is_read() -> None:
    [queue] = parse(GOOD).queues
    assert (queue.id, queue.name, queue.class_name) == (1, "emails", "Emails")
    assert [(field.name, field.type.word) for field in queue.fields] == [
        ("to", "string"),
        ("subject", "string"),
        ("body", "[]byte"),
        ("user_id", "int64"),
    ]
    assert not any(field.has_default for field in queue.fields)


def test_everything_that_may_be_said_is_read() -> None:
    contract = parse(
        """
description: The shop
queues:
  - id: 7
    name: new_orders
    description: Orders that came in
    batch: 50
    concurrency: 8
    lease: 1m30s
    timeout: 20
    renew: false
    retry: {first: 2s, factor: 3, longest: 10m, jitter: false}
    max_attempts: 3
    max_crashes: 4
    keep_for: 1h
    keep_dead_for: 7d
    policy: aging
    cost: 5
    lanes: {limit: 2, limits: {customer-7: 10, "a, b": 0, 东京: null}, fair: false, weights: {gold: 3, tin: 0.5},
            by_cost: true, total: 9, shared: github}
    fields:
      - {name: order_id, type: int, description: Its number}
      - {name: total, type: float}
      - {name: tags, type: "[]string", default: [a, "1"]}
      - {name: numbers, type: "[]int", default: [1, -2]}
      - {name: note, type: string, optional: true}
      - {name: gift, type: bool, default: true}
      - {name: price, type: float, default: 2}
      - {name: raw, type: "[]byte", default: ä}
      - {name: code, type: string, optional: true, default: null}
"""
    )
    [queue] = contract.queues
    assert (contract.description, queue.description) == ("The shop", "Orders that came in")
    assert queue.settings.given() == {
        "batch": 50,
        "concurrency": 8,
        "lease": 90.0,
        "timeout": 20.0,
        "renew": False,
        "retry": Exponential(first=2.0, factor=3.0, longest=600.0, jitter=False),
        "max_attempts": 3,
        "max_crashes": 4,
        "keep_for": 3600.0,
        "keep_dead_for": 604800.0,
        "policy": "aging",
        "cost": 5,
        "lanes": Lanes(
            limit=2,
            limits={"customer-7": 10, "a, b": 0, "东京": None},
            weights={"gold": 3, "tin": 0.5},
            by_cost=True,
            total=9,
            shared="github",
        ),
    }
    defaults = {field.name: field.default for field in queue.fields if field.default is not UNSET}
    assert defaults == {
        "tags": ["a", "1"],
        "numbers": [1, -2],
        "gift": True,
        "price": 2.0,
        "raw": "ä".encode(),
        "code": None,
    }


def test_a_number_is_the_limit_of_lanes() -> None:
    [queue] = parse(GOOD.replace("    fields:", "    lanes: 2\n    fields:")).queues
    assert queue.settings.lanes == Lanes(limit=2)


def test_scalars_are_those_of_yaml_1_2() -> None:
    """`no` and `on` are words there: a queue may be called `no`, and a field `on`."""
    [queue] = parse("queues:\n- id: 0x10\n  name: no\n  fields: [{name: on, type: string, default: off}]").queues
    assert (queue.id, queue.name, queue.fields[0].name, queue.fields[0].default) == (16, "no", "on", "off")


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())  # some editors begin a file with a mark
    assert load(file) == parse(GOOD)


def test_a_file_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"none\.yaml: cannot be read: No such file"):
        load(tmp_path / "none.yaml")


NAMES = "write lower-case ASCII words joined by _, at most 40 letters, such as new_orders"
TYPES = "int, int64, string, bool, []byte, []int, []int64, float, []string"

WRONG_LANES = "{lmit: 1, limits: 2, weights: {a: 0, b: [1]}, fair: 1, shared: a b}"
WRONG: list[tuple[str, list[str]]] = [
    ("", ["1:1: a contract begins with  queues:  and a list of queues"]),
    ("[]", ["1:1: a contract begins with  queues:  and a list of queues"]),
    ("{}", ["1:1: the contract has no queues; begin it with  queues:  and a list of them"]),
    ("queue: []", [
        "1:1: a contract has no 'queue'; did you mean 'queues'?",
        "1:1: the contract has no queues; begin it with  queues:  and a list of them",
    ]),
    ("queues: []", ["1:9: queues is empty; there must be at least one queue"]),
    ("queues: {}", ["1:9: queues must be a list; begin each queue with a dash"]),
    ("queues: [emails]", ["1:10: a queue is a mapping; write  - id: 1  and below it  name:  and  fields:"]),
    ("queues:\n  - {}", [
        "2:5: a queue needs 'id'; write a number that no other queue has, such as  id: 1",
        "2:5: a queue needs 'name'; write  name: emails",
        "2:5: a queue needs 'fields'; write  fields:  and a list such as  - {name: to, type: string}",
    ]),
    (GOOD.replace("id: 1", "id: 0"), ["2:9: id must be a whole number from 1 to 2147483647, not '0'"]),
    (GOOD.replace("id: 1", "id: -3"), ["2:9: id must be a whole number from 1 to 2147483647, not '-3'"]),
    (GOOD.replace("id: 1", "id: '1'"), ["2:9: id must be a whole number from 1 to 2147483647, not '1'"]),
    (GOOD.replace("id: 1", "id: 1.5"), ["2:9: id must be a whole number from 1 to 2147483647, not '1.5'"]),
    (GOOD.replace("id: 1", "id:"), ["2:8: id must be a whole number from 1 to 2147483647, not nothing"]),
    (GOOD + "  - id: 1\n    name: other\n" + FIELDS, [
        "9:9: id 1 is here a second time, first in line 2; write another",
    ]),
    (GOOD + "  - id: 2\n    name: emails\n" + FIELDS, [
        "10:11: the queue 'emails' is here a second time, first in line 3; write another",
    ]),
    (GOOD + "  - id: 2\n    name: e_mails\n" + FIELDS, [
        "10:11: the queue 'e_mails' is here a second time, first in line 3; write another",
    ]),
    (GOOD.replace("name: emails", "name: Emails"), [f"3:11: 'Emails' is no name of a queue; {NAMES}"]),
    (GOOD.replace("name: emails", "name: new-orders"), [f"3:11: 'new-orders' is no name of a queue; {NAMES}"]),
    (GOOD.replace("name: emails", "name: 7up"), [f"3:11: '7up' is no name of a queue; {NAMES}"]),
    (GOOD.replace("name: emails", "name: true"), [
        f"3:11: 'true' is no name of a queue; {NAMES}; in quotes if 'true' is meant",
    ]),
    (GOOD.replace("name: emails", "name: class"), [
        "3:11: 'class' is a word of Python and cannot be a name; write 'class_name'",
    ]),
    (GOOD.replace("name: emails", "name: handlers"), [
        "3:11: 'handlers' is a module of the generated package; write 'handlers_jobs'",
    ]),
    (GOOD.replace("name: emails", "nam: emails"), [
        "2:5: a queue needs 'name'; write  name: emails",
        "3:5: a queue has no 'nam'; did you mean 'name'?",
    ]),
    (HEAD.replace("fields:", "fields: []"), ["4:13: fields is empty; there must be at least one field"]),
    (HEAD + "      - to", ["5:9: a field is a mapping; write  - {name: to, type: string}"]),
    (HEAD + "      - {name: to}", [f"5:9: a field needs 'type'; write one of {TYPES}"]),
    (HEAD + "      - {type: string}", ["5:9: a field needs 'name'; write  name: emails"]),
    (HEAD + "      - {name: to, type: strin}", ["5:26: there is no type 'strin'; did you mean 'string'?"]),
    (HEAD + "      - {name: to, type: uuid}", [f"5:26: there is no type 'uuid'; write one of {TYPES}"]),
    (HEAD + "      - {name: to, type: []}", [
        '5:26: a list is no type; write it in quotes: "[]byte", "[]int", "[]int64" or "[]string"',
    ]),
    (HEAD + "      - {name: to, type: []byte}", [
        "5:28: not valid YAML: did not find expected ',' or '}'; write types such as \"[]byte\" in quotes",
    ]),
    (GOOD.replace("subject", "to"), ["6:16: the field 'to' is here a second time, first in line 5; write another"]),
    (GOOD.replace("user_id", "job_id"), ["8:16: 'job_id' is what every job has already; write another name"]),
    (GOOD.replace("user_id", "attempts"), ["8:16: 'attempts' is what every job has already; write another name"]),
    (GOOD.replace("user_id", "prev_start_time"), [
        "8:16: 'prev_start_time' is what every job has already; write another name",
    ]),
    (GOOD.replace("user_id", "lambda"), [
        "8:16: 'lambda' is a word of Python and cannot be a name; write 'lambda_name'",
    ]),
    (GOOD.replace("user_id", "list"), ["8:16: 'list' is a name that the generated code needs; write 'list_value'"]),
    (HEAD + "      - {name: a, type: int, default: x}", [
        "5:39: the default must be a whole number of 64 bits, not 'x'",
    ]),
    (HEAD + "      - {name: a, type: int, default: 9223372036854775808}", [
        "5:39: the default must be a whole number of 64 bits, not '9223372036854775808'",
    ]),
    (HEAD + "      - {name: a, type: string, default: 5}", [
        "5:42: the default must be a text (in quotes, if it looks like a number or a truth value), not '5'",
    ]),
    (HEAD + "      - {name: a, type: bool, default: no}", ["5:40: the default must be true or false, not 'no'"]),
    (HEAD + "      - {name: a, type: '[]int', default: [1, x]}", [
        "5:43: the default must be a list of int, not a list",
    ]),
    (HEAD + "      - {name: a, type: int, default: 1}\n      - {name: b, type: int}", [
        "6:9: b has no default, but a before it has; put it first, or give it a default: old jobs end before it",
    ]),
    (HEAD + "      - {name: a, type: int, optional: maybe}", ["5:40: optional must be true or false, not 'maybe'"]),
    (HEAD + "      - {name: a, type: int, defualt: 1}", ["5:30: a field has no 'defualt'; did you mean 'default'?"]),
    (GOOD.replace("    fields:", "    batch: many\n    fields:"), [
        "4:12: batch must be a whole number from 1 to 100000, not 'many'",
    ]),
    (GOOD.replace("    fields:", "    visibility_timeout: 30\n    batch_size: 5\n    fields:"), [
        "4:5: a queue has no 'visibility_timeout'; write 'lease'",
        "5:5: a queue has no 'batch_size'; write 'batch'",
    ]),
    (GOOD.replace("    fields:", "    retry: soon\n    fields:"), [
        "4:12: retry must be a length of time from 0 to 31622400 seconds (30, \"30s\", \"500ms\", \"2m\"), "
        "not 'soon'; or write {first: 1s, factor: 2, longest: 1h}",
    ]),
    (GOOD.replace("    fields:", "    retry: {first: -1, factor: x, jitter: 1, lognest: 1h}\n    fields:"), [
        "4:20: first of retry must be a length of time from 0 to 31622400 seconds "
        "(30, \"30s\", \"500ms\", \"2m\"), not '-1'",
        "4:32: factor of retry must be a number from 1 to 1000, not 'x'",
        "4:43: jitter of retry must be true or false, not '1'",
        "4:46: retry has no 'lognest'; did you mean 'longest'?",
    ]),
    (GOOD.replace("    fields:", "    max_crashes: 0\n    timeout: []\n    fields:"), [
        "4:18: max_crashes must be a whole number from 1 to 1000000000 or \"none\", not '0'",
        "5:14: timeout must be one value, not a list; leave it out for the default",
    ]),
    (GOOD.replace("    fields:", "    lanes: many\n    fields:"), [
        "4:12: lanes must be rules such as {limit: 2, fair: true}, not 'many'",
    ]),
    (GOOD.replace("    fields:", "    lanes: 10001\n    fields:"), [
        "4:12: limit of lanes must be 0 to 10000, or null, not '10001'",
    ]),
    (GOOD.replace("    fields:", f"    lanes: {WRONG_LANES}\n    fields:"), [
        "4:13: lanes has no 'lmit'; did you mean 'limit'?",
        "4:30: limits of lanes must be a mapping such as {customer-7: 10, spammer: 0}, not '2'",
        "4:46: weights['a'] of lanes must be a number from 1/1000 to 1000, not '0'",
        "4:52: weights['b'] of lanes must be one value, not a list",
        "4:64: fair of lanes must be true or false, not '1'",
        "4:75: shared of lanes must be 1 to 128 letters, digits, '_', '.' or '-', "
        "and not start with '.' or '-', not 'a b'",
    ]),
    (GOOD.replace("    fields:", "    lanes: {limits: {a: -1, '': 1}, total: [3], by_cost: }\n    fields:"), [
        "4:25: limits['a'] of lanes must be 0 to 10000, or null, not '-1'",
        "4:29: '' is no lane; write 1 to 128 printable characters",
        "4:44: total of lanes must be one value, not a list",
        "4:58: by_cost of lanes must be true or false, not nothing",
    ]),
    (GOOD.replace("    fields:", "    lanes: {fair: true}\n    policy: aging\n    fields:"), [
        "2:5: lanes cannot be fair with policy='aging', where every job has a rank of its own, so that nothing could "
        "take turns; use policy='strict', or lanes without fair=True",
    ]),
    (GOOD.replace("    fields:", "    policy: fair\n    fields:"), [
        "4:13: policy: must be one of strict, aging, not 'fair'",
    ]),
    (GOOD.replace("    fields:", "    cost: -1\n    fields:"), [
        "4:11: cost must be a whole number from 0 to 2^53, not '-1'",
    ]),
    (GOOD.replace("    fields:", "    name: again\n    fields:"), [
        "4:5: 'name' is here a second time, first in line 3; remove one",
    ]),
    ("queues: &all\n  - *all", ["2:5: aliases (*all) are not read; write the value out"]),
    ("queues: !!python/object/apply:os.system ['true']", [
        "1:9: the tag 'tag:yaml.org,2002:python/object/apply:os.system' has no meaning here; remove it",
    ]),
    (GOOD + "---\n" + GOOD, ["9:1: a second document begins here; write one document in a file"]),
    ("queues: [" * 20, ["1:73: this is nested more than 16 deep"]),
    ("? [a]\n: b", ["1:3: a list or a mapping cannot be a name; write a word and a colon"]),
    ("queues: 'x", ["1:11: not valid YAML: found unexpected end of stream"]),
    (GOOD.replace("emails", "e" * 41), [f"3:11: '{'e' * 37}…' is no name of a queue; {NAMES}"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), WRONG, ids=range(len(WRONG)))
def test_a_mistake_is_told_with_its_place(text: str, expected: list[str]) -> None:
    assert mistakes(text) == expected


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file() -> None:
    text = """\
queues:
  - id: 0
    fields:
      - {name: class, type: strng}
  - id: 2
    name: A
    fields:
      - {name: a, type: int, default: x}
"""
    places = [mistake.split(": ")[0] for mistake in mistakes(text)]
    assert places == ["2:5", "2:9", "4:16", "4:29", "6:11", "8:39"]


def test_a_file_that_is_wrong_everywhere_is_told_about_a_hundred_times() -> None:
    assert len(mistakes("queues:\n" + "  - {}\n" * 500)) == 100


def test_what_is_no_utf_8_is_told_with_its_place() -> None:
    assert mistakes(b"queues:\n  - id: \xff") == ["2:9: the byte 0xff is no UTF-8; save the file as UTF-8"]


def test_a_huge_file_is_not_read() -> None:
    assert mistakes(b" " * (MOST_BYTES + 1)) == ["1:1: the file has 1,048,577 bytes; a contract may have 1,048,576"]


@pytest.mark.timeout(20)
def test_a_bomb_of_aliases_costs_nothing() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    assert mistakes(bomb) == ["2:8: aliases (*a) are not read; write the value out"]


INJECTIONS = [
    "a'; import os; os.system('true'); '",
    'a"""\nimport os\n"""',
    "a\nimport os",
    "__class__",
    "__import__('os')",
    "аdmin",  # a Cyrillic letter that looks like a Latin one
    "na\u0301me",
    "ﬁeld",  # a ligature, which Python would read as two letters
    "name\u200b",
    "name\u202e",
    "a b",
    "a.b",
    "a=1",
    "a:int",
    "a)",
    "a\\nb",
    "${x}",
    "{0}",
    "None",
    "self",
]


@pytest.mark.parametrize("name", INJECTIONS)
@pytest.mark.parametrize("where", ["queue", "field"])
def test_a_name_cannot_carry_code(name: str, where: str) -> None:
    text = GOOD.replace("emails" if where == "queue" else "user_id", json.dumps(name))
    [mistake] = mistakes(text)
    assert mistake.startswith("3:11: " if where == "queue" else "8:16: ")
    assert mistake.isascii() or "…" in mistake
