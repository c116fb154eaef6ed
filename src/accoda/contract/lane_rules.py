"""The key `lanes` of a queue: the rules for its lanes, see `Lanes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from accoda.contract.problems import described, shown
from accoda.errors import InvalidInput
from accoda.model import LANE, LANE_LIMIT, WEIGHT, Lanes, check_lane
from accoda.settings.knobs import suggest
from accoda.settings.yaml_tree import MappingNode, Node, Position, Scalar

Wrong = Callable[[Position, str], None]

_FIELDS = Lanes.__struct_fields__
_BY_LANE = {"limits": "{customer-7: 10, spammer: 0}", "weights": "{gold: 3}"}


def read_lanes(node: Node, wrong: Wrong) -> Lanes | None:
    """The rules; `lanes: 2` is short for `lanes: {limit: 2}`. What is wrong is said of its position, and left out."""
    if isinstance(node, Scalar) and type(node.value) is int:
        limit = _checked("limit", node, node.value, wrong)
        return None if limit is None else Lanes(**limit)
    if not isinstance(node, MappingNode):
        wrong(node.position, f"lanes must be rules such as {{limit: 2, fair: true}}, not {described(node)}")
        return None
    values: dict[str, Any] = {}
    for key, (position, value) in node.items.items():
        if key not in _FIELDS:
            wrong(position, f"lanes has no {shown(key)}; {suggest(key, _FIELDS)}")
        elif key in _BY_LANE:
            values[key] = _by_lane(key, value, wrong)
        elif isinstance(value, Scalar):
            values |= _checked(key, value, value.value, wrong) or {}
        else:
            wrong(value.position, f"{key} of lanes must be one value, not {described(value)}")
    return Lanes(**values)


def _by_lane(key: str, node: Node, wrong: Wrong) -> dict[str, Any]:
    if not isinstance(node, MappingNode):
        wrong(node.position, f"{key} of lanes must be a mapping such as {_BY_LANE[key]}, not {described(node)}")
        return {}
    found: dict[str, Any] = {}
    for lane, (position, value) in node.items.items():
        try:
            check_lane(lane)
        except InvalidInput:
            wrong(position, f"{shown(lane)} is no lane; write 1 to {LANE} printable characters")
            continue
        if not isinstance(value, Scalar):
            wrong(value.position, f"{key}[{shown(lane)}] of lanes must be one value, not {described(value)}")
        elif (one := _checked(key, value, {lane: value.value}, wrong)) is not None:
            found |= one[key]
    return found


def _checked(key: str, node: Scalar, value: Any, wrong: Wrong) -> dict[str, Any] | None:
    """The rule by its name, if it can be used."""
    try:
        Lanes(**{key: value})
    except InvalidInput as error:
        problem = str(error).removeprefix(f"{error.field}: ").rpartition(", not ")[0]
        problem = problem.replace("None", "null").replace("True or False", "true or false")  # as YAML says it
        wrong(node.position, f"{error.field} of lanes {problem}, not {described(node)}")
        return None
    return {key: value}


def written(rules: Lanes) -> dict[str, Any]:
    """The rules as values of YAML: those that are not the usual ones."""
    usual = asdict(Lanes())
    return {name: value for name, value in asdict(rules).items() if value != usual[name]}


def lanes_schema() -> dict[str, Any]:
    """The JSON Schema of the key."""
    limit = {"type": "integer", "minimum": 0, "maximum": LANE_LIMIT}
    no_limit = {"anyOf": [limit, {"type": "null"}]}
    truth = {"type": "boolean"}
    weight = {"type": "number", "minimum": 1 / WEIGHT, "maximum": WEIGHT}
    rules = {
        "limit": no_limit | {"description": "how many jobs of a lane may be in the line or run at once"},
        "limits": {"type": "object", "additionalProperties": no_limit},
        "fair": truth | {"description": "whether lanes take turns in each priority level"},
        "weights": {"type": "object", "additionalProperties": weight},
        "by_cost": truth | {"description": "whether a turn is as long as the job's cost"},
        "total": {
            "anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}],
            "description": "how many jobs of the queue may run at once",
        },
        "shared": {"type": ["string", "null"], "description": "queues with the same name here share their limits"},
    }
    return {
        "anyOf": [limit, {"type": "object", "additionalProperties": False, "properties": rules}],
        "description": "the rules for its lanes; a number is their limit",
    }
