"""The JSON Schema for editors: it is one, good contracts conform to it, and it finds the mistakes that it can."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from accoda.cli.commands import accoda
from accoda.contract import parse
from accoda.contract.export import write
from accoda.contract.model import FIELD_TYPES
from accoda.contract.schema import schema
from accoda.errors import ContractError

SCHEMA = schema()
KINDS: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
    "null": type(None),
}  # fmt: skip
# Each word of JSON Schema that the schema may use, and what it may say.
WORDS: dict[str, Any] = {
    "$schema": str, "title": str, "description": str, "type": (str, list), "enum": list, "pattern": str, "not": dict,
    "required": list, "properties": dict, "additionalProperties": (bool, dict), "items": dict,
    "anyOf": list, "minimum": (int, float), "maximum": int, "minItems": int, "maxItems": int, "maxLength": int,
}  # fmt: skip


def conforms(value: Any, rule: dict[str, Any]) -> bool:
    """As much of JSON Schema as is used here."""
    kinds = rule.get("type", list(KINDS))
    if "type" in rule and not any(_is(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return False
    if "enum" in rule and value not in rule["enum"]:
        return False
    if "not" in rule and conforms(value, rule["not"]):
        return False
    if "anyOf" in rule and not any(conforms(value, each) for each in rule["anyOf"]):
        return False
    if isinstance(value, str):
        return len(value) <= rule.get("maxLength", 10**9) and bool(re.search(rule.get("pattern", ""), value))
    if isinstance(value, int | float):
        return bool(rule.get("minimum", value) <= value <= rule.get("maximum", value))
    if isinstance(value, list):
        fits = rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", 10**9)
        return fits and all(conforms(each, rule.get("items", {})) for each in value)
    if isinstance(value, dict):
        known = rule.get("properties", {})
        if not set(rule.get("required", ())) <= set(value) or (
            rule.get("additionalProperties") is False and not set(value) <= set(known)
        ):
            return False
        others = rule.get("additionalProperties") or {}
        return all(conforms(each, known.get(name, others)) for name, each in value.items())
    return True


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def check_rule(rule: dict[str, Any]) -> None:
    assert isinstance(rule, dict)
    for word, said in rule.items():
        assert isinstance(said, WORDS[word]), (word, said)
    if "pattern" in rule:
        re.compile(rule["pattern"])
    assert set(rule.get("required", ())) <= set(rule.get("properties", {}))
    for inner in (
        *rule.get("properties", {}).values(),
        *(rule[word] for word in ("items", "not") if word in rule),
        *rule.get("anyOf", ()),
        *([others] if isinstance(others := rule.get("additionalProperties"), dict) else []),
    ):
        check_rule(inner)


def test_it_is_a_schema() -> None:
    check_rule(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_the_command_prints_it() -> None:
    done = CliRunner().invoke(accoda, ["contract", "schema"])
    assert (done.exit_code, json.loads(done.output)) == (0, SCHEMA)


def test_it_says_something_about_every_key() -> None:
    queue = SCHEMA["properties"]["queues"]["items"]
    field = queue["properties"]["fields"]["items"]
    for name, rule in {**queue["properties"], **field["properties"]}.items():
        assert rule.get("description") or name == "fields", name


GOOD = """\
queues:
  - id: 1
    name: emails
    fields:
      - {name: to, type: string}
"""
ROOT = Path(__file__).parents[2]
FULL = """\
description: Everything
queues:
  - id: 2147483647
    name: new_orders2
    description: Orders
    batch: 100000
    lease: 1m30s
    timeout: 30s
    renew: false
    retry: {first: 2s, factor: 1.5, longest: 10m, jitter: false}
    max_attempts: none
    max_crashes: 5
    concurrency: 20
    keep_for: 1h
    keep_dead_for: 3600
    policy: aging
    cost: 0
    lanes: {limit: 2, limits: {a: 10, "b c": null}, fair: false, weights: {gold: 0.5}, by_cost: true, total: null,
            shared: x}
    fields:
      - {name: a, type: int, description: A number}
      - {name: b, type: "[]string", default: [x]}
      - {name: c, type: float, optional: true, default: null}
"""


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        FULL,
        GOOD.replace("    fields:", "    retry: 30s\n    fields:"),
        GOOD.replace("    fields:", "    lanes: 2\n    fields:"),
        GOOD.replace("    fields:", "    lanes: {limit: null}\n    fields:"),
        FULL.replace("1m30s", "2.5").replace("max_attempts: none", "max_attempts: 3"),
        (ROOT / "examples" / "shop" / "contracts" / "queues.yaml").read_text(),
        *(GOOD.replace("string", f'"{word}"') for word in FIELD_TYPES),
        write(parse(FULL)),
    ],
)
def test_a_good_contract_conforms(text: str) -> None:
    parse(text)
    assert conforms(yaml.safe_load(text), SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        "queues: []",
        "queues: {}",
        "{}",
        "[]",
        "queue: []",
        "queues: [emails]",
        GOOD.replace("id: 1", "id: 0"),
        GOOD.replace("id: 1", "id: '1'"),
        GOOD.replace("id: 1", "id: 2147483648"),
        GOOD.replace("  - id: 1\n    name", "  - name"),
        GOOD.replace("name: emails", "name: Emails"),
        GOOD.replace("name: emails", "name: new-orders"),
        GOOD.replace("name: emails", "name: a" + "b" * 40),
        GOOD.replace("name: emails", "name: true"),
        GOOD.replace("name: to", "name: job_id"),
        GOOD.replace("name: to", "name: __class__"),
        GOOD.replace("string", "strin"),
        GOOD.replace(", type: string", ""),
        GOOD.replace("string", "string, optional: maybe"),
        GOOD.replace("string", "string, defualt: x"),
        GOOD.replace("    fields:", "    batch: 0\n    fields:"),
        GOOD.replace("    fields:", "    batch: 100001\n    fields:"),
        GOOD.replace("    fields:", "    policy: fair\n    fields:"),
        GOOD.replace("    fields:", "    retry: [1]\n    fields:"),
        GOOD.replace("    fields:", "    retry: {frist: 1}\n    fields:"),
        GOOD.replace("    fields:", "    lanes: {lmit: 1}\n    fields:"),
        GOOD.replace("    fields:", "    lanes: {limit: -1}\n    fields:"),
        GOOD.replace("    fields:", "    lanes: {limits: {a: 10001}}\n    fields:"),
        GOOD.replace("    fields:", "    lanes: {weights: {a: 0}}\n    fields:"),
        GOOD.replace("    fields:", "    lanes: {fair: 1}\n    fields:"),
        GOOD.replace("    fields:", "    lanes: [1]\n    fields:"),
        GOOD.replace("    fields:", "    retry: {factor: 0}\n    fields:"),
        GOOD.replace("    fields:", "    visibility_timeout: 30\n    fields:"),
        GOOD.replace("    fields:", "    cost: -1\n    fields:"),
        GOOD.replace("    fields:", "    bacth: 10\n    fields:"),
        GOOD.replace("    fields:\n      - {name: to, type: string}", "    fields: []"),
        GOOD.replace("string}", f"string, description: {'x' * 2001}}}"),
    ],
)
def test_a_bad_contract_does_not(text: str) -> None:
    with pytest.raises(ContractError):
        parse(text)
    assert not conforms(yaml.safe_load(text), SCHEMA)
