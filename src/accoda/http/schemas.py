"""The JSON schemas of what goes over the wire, as clients are generated from them.

- A request asks for what it needs: what has a default may be left out, and the default is told in words. Generators
  such as openapi-typescript take a property with the keyword `default` for one that is always there.
- An answer has all of its fields, those with a default too.
- Rules that no type can say (`Operation.rules`) are merged into the request's schema. They say what is not allowed
  (`not`): generators leave that out, while `oneOf` and `allOf` would become unions of intersections.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from accoda.http.operation import Nothing, Operation
from accoda.http.problems import Problem
from accoda.http.resources.common import OwnQueuePath
from accoda.operations.new_jobs import NewJobRequest

WITH_QUEUES = frozenset({NewJobRequest.__name__, "NewNode", "NewSchedule", "ScheduleSpec", "ScheduleChange"})
"""Requests with a queue of the user's in them."""
SPARSE = frozenset({Problem.__name__})
"""Answers that leave out what has its default."""
_REF = "#/components/schemas/{name}"


class Schemas:
    """The schema of every type in the table, made together so that they share their components."""

    def __init__(self, table: Sequence[Operation]) -> None:
        requests = [operation.request for operation in table if operation.request is not None]
        replies = [reply.type for each in table for reply in each.replies.values() if reply.type is not None]
        asked = [kind for each in table for kind in (each.path_type, each.query)]
        self._types: list[Any] = [Problem, *asked, *requests, *replies]
        self._schemas, self.components = msgspec.json.schema_components(self._types, ref_template=_REF)
        in_requests = self._reached(self.of(each) for each in requests)
        for name in in_requests:
            _tell_defaults(self.components[name])
        for name in self._reached(self.of(each) for each in replies) - in_requests - SPARSE:
            _require_all(self.components[name])
        for operation in table:
            if operation.rules:
                _merge(self.components[operation.request.__name__], operation.rules)
        # Parameters are written where they are used: no component of the document speaks of a query as an object.
        self._parameters: dict[str, Any] = {}
        for kind in asked:
            found = self.components.pop(kind.__name__, None)
            if found is not None:
                self._parameters[kind.__name__] = found

    def leave_out(self, queues: Sequence[str]) -> None:
        """Say of every place for a user's queue that it is none of these, and none of their companions."""
        names = "|".join(re.escape(queue) for queue in queues)
        others = {"not": {"type": "string", "pattern": rf"^({names})(\..*)?$"}}  # what is left out, or null, is none
        for name in WITH_QUEUES & self.components.keys():
            _merge(self.components[name], {"properties": {"queue": others}})
        path = self._parameters.get(OwnQueuePath.__name__)
        if path is not None:
            path["properties"]["name"] = {**path["properties"]["name"], **others}

    def of(self, type: Any) -> dict[str, Any]:
        """A reference to a type, or its schema where it has no name."""
        return dict(self._schemas[next(n for n, each in enumerate(self._types) if each is type or each == type)])

    def parameters(self, type: type[msgspec.Struct]) -> dict[str, Any]:
        return dict(self._parameters[type.__name__]) if type is not Nothing else {"properties": {}, "required": []}

    def _reached(self, schemas: Iterable[dict[str, Any]]) -> set[str]:
        """The components that these schemas use, directly or not."""
        found: set[str] = set()
        left = [name for schema in schemas for name in _references(schema)]
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += _references(self.components[name])
        return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].rpartition("/")[2]
        schema = list(schema.values())
    if isinstance(schema, list):
        for each in schema:
            yield from _references(each)


def _tell_defaults(component: dict[str, Any]) -> None:
    """Defaults in words; null and empty ones say nothing."""
    for schema in component.get("properties", {}).values():
        default = schema.pop("default", None)
        if default not in (None, "", [], (), {}):
            told = f"default: {json.dumps(default)}"
            schema["description"] = f"{schema['description']}; {told}" if "description" in schema else told


def _require_all(component: dict[str, Any]) -> None:
    """Every field that has a default is in the answer. One that may be unset has no default in its schema."""
    needed = component.get("required", [])
    present = [name for name, schema in component.get("properties", {}).items() if "default" in schema]
    if present:
        component["required"] = [*needed, *(name for name in present if name not in needed)]


def _merge(schema: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        present = schema.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            schema[key] = dict(present)
            _merge(schema[key], value)
        else:
            schema[key] = value
