"""What a contract says of a queue besides its fields: each key has the name and the meaning of a handler's option."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accoda.contract import lane_rules
from accoda.contract.problems import described, shown
from accoda.errors import AccodaError
from accoda.model import Lanes
from accoda.priority import policy
from accoda.retry import Exponential, Fixed
from accoda.settings.knobs import QUEUE_KNOBS, Knob, Number, suggest
from accoda.settings.yaml_tree import MappingNode, Node, Position, Scalar

Wrong = Callable[[Position, str], None]


class QueueSettings(Struct, frozen=True):
    """What a contract says of a queue's jobs, as `@app.handler` would; None: not given."""

    batch: Number = None
    concurrency: Number = None
    lease: Number = None
    timeout: Number = None
    renew: bool | None = None
    retry: Fixed | Exponential | None = None
    max_attempts: Number = None
    max_crashes: Number = None
    keep_for: Number = None
    keep_dead_for: Number = None
    policy: str | None = None
    cost: int | None = None
    lanes: Lanes | None = None

    def given(self) -> dict[str, Any]:
        """Those that are given, by name."""
        return {name: value for name in KEYS if (value := getattr(self, name)) is not None}

    def written(self) -> dict[str, Any]:
        """The same as values of YAML."""
        return {name: _plain(value) for name, value in self.given().items()}


KEYS = QueueSettings.__struct_fields__
_KNOBS = {knob.option: replace(knob, name=knob.option) for knob in QUEUE_KNOBS.values() if knob.option in KEYS}
_KNOBS["keep_for"] = Knob(
    name="keep_for", of="queue", kind="seconds", default=None, low=0, high=_KNOBS["lease"].high,
    help="how long finished jobs are kept with their results",
)  # fmt: skip
_PAUSE = Knob(name="retry", of="queue", kind="seconds", default=None, low=0, high=_KNOBS["lease"].high, help="")
_MOST_COST = 1 << 53


def read_setting(name: str, node: Node, wrong: Wrong) -> Any:
    """The value of a key; None where it is wrong, which is said of its position."""
    if name == "retry" and isinstance(node, MappingNode):
        return _read_retry(node, wrong)
    if name == "lanes":
        return lane_rules.read_lanes(node, wrong)
    if not isinstance(node, Scalar) or node.value is None:
        wrong(node.position, f"{name} must be one value, not {described(node)}; leave it out for the default")
        return None
    try:
        if name == "policy":
            policy(node.text)
            return node.text
        if name == "cost":
            if type(node.value) is not int or not 0 <= node.value <= _MOST_COST:
                raise ValueError(f"cost must be a whole number from 0 to 2^53, not {described(node)}")
            return node.value
        if name == "renew":
            if not isinstance(node.value, bool):
                raise ValueError(f"renew must be true or false, not {described(node)}")
            return node.value
        if name == "retry":
            return Fixed(float(_PAUSE.read(node.text) or 0))
        return _KNOBS[name].read(node.text)
    except (ValueError, AccodaError) as error:
        more = "; or write {first: 1s, factor: 2, longest: 1h}" if name == "retry" else ""
        wrong(node.position, f"{error}{more}")
        return None


def _read_retry(node: MappingNode, wrong: Wrong) -> Exponential:
    values: dict[str, Any] = {}
    for key, (position, value) in node.items.items():
        if key not in _RETRY:
            wrong(position, f"retry has no {shown(key)}; {suggest(key, tuple(_RETRY))}")
            continue
        read, words = _RETRY[key]
        found = read(value) if isinstance(value, Scalar) else None
        if found is None:
            wrong(value.position, f"{key} of retry must be {words}, not {described(value)}")
        else:
            values[key] = found
    return Exponential(**values)


def _length(node: Scalar) -> float | None:
    try:
        value = _PAUSE.read(node.text)
    except ValueError:
        return None
    return None if value is None else float(value)


def _factor(node: Scalar) -> float | None:
    value = node.value
    return float(value) if type(value) in (int, float) and 1 <= value <= 1000 else None  # type: ignore[operator,arg-type]


def _truth(node: Scalar) -> bool | None:
    return node.value if isinstance(node.value, bool) else None


def _plain(value: Any) -> Any:
    if isinstance(value, Fixed):
        return value.delay
    if isinstance(value, Lanes):
        return lane_rules.written(value)
    if isinstance(value, Exponential):
        usual = msgspec.structs.asdict(Exponential())
        return {key: each for key, each in msgspec.structs.asdict(value).items() if each != usual[key]}
    return value


def key_schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schema of each key."""
    length = {"type": ["number", "string"]}
    parts = {"first": length, "factor": {"type": "number", "minimum": 1, "maximum": 1000}, "longest": length}
    retry = {
        "anyOf": [
            length,
            {"type": "object", "additionalProperties": False, "properties": {**parts, "jitter": {"type": "boolean"}}},
        ],
        "description": "the pause before a failed job is tried again, or how pauses grow",
    }
    return {
        **{name: _knob_schema(_KNOBS[name]) for name in KEYS if name in _KNOBS},
        "renew": {"type": "boolean", "description": "whether leases are extended while their jobs run"},
        "retry": retry,
        "policy": {"enum": ["strict", "aging"], "description": "how priorities order its jobs"},
        "cost": {"type": "integer", "minimum": 0, "maximum": _MOST_COST, "description": "what a job takes of a budget"},
        "lanes": lane_rules.lanes_schema(),
    }


def _knob_schema(knob: Knob) -> dict[str, Any]:
    if knob.kind == "seconds":
        return {"type": ["number", "string"], "description": knob.help}
    if knob.none:
        return {"type": ["integer", "string"], "description": knob.help}
    return {"type": "integer", "minimum": int(knob.low), "maximum": int(knob.high), "description": knob.help}


_RETRY: dict[str, tuple[Callable[[Scalar], Any], str]] = {
    "first": (_length, _PAUSE.range),
    "factor": (_factor, "a number from 1 to 1000"),
    "longest": (_length, _PAUSE.range),
    "jitter": (_truth, "true or false"),
}
