"""The JSON Schema of the contract format, for completion and checks in editors."""

from __future__ import annotations

from typing import Any

from accoda.contract.loader import MOST_FIELDS, MOST_ID, MOST_NAME, MOST_QUEUES, MOST_TEXT, NAME, RESERVED
from accoda.contract.model import FIELD_TYPES
from accoda.contract.queue_settings import key_schemas


def schema() -> dict[str, Any]:
    """What `accoda contract schema` prints. The loader checks more: duplicates, order of defaults, Python keywords."""
    name = {"type": "string", "pattern": f"^{NAME.pattern}$", "maxLength": MOST_NAME}
    text = {"type": "string", "maxLength": MOST_TEXT, "description": "For people."}
    field = _object(
        ("name", "type"),
        name={**name, "not": {"enum": list(RESERVED)}, "description": "The field's name in Python."},
        type={"enum": list(FIELD_TYPES), "description": "What it holds."},
        description=text,
        optional={"type": "boolean", "description": "Whether it may be null. It is null if it is not given."},
        default={"description": "Its value if it is not given, and in jobs that were stored before the field existed."},
    )
    queue = _object(
        ("id", "name", "fields"),
        id={"type": "integer", "minimum": 1, "maximum": MOST_ID, "description": "A unique number."},
        name={**name, "description": "The queue's name; or, if it shares a queue, that of its kind of job."},
        queue={**name, "description": "The queue that it shares with others."},
        type={"type": "string", "maxLength": 200, "pattern": "^.+$", "description": "Its jobs' type; else its name."},
        description=text,
        fields={"type": "array", "minItems": 1, "maxItems": MOST_FIELDS, "items": field},
        **key_schemas(),
    )
    queues = {"type": "array", "minItems": 1, "maxItems": MOST_QUEUES, "items": queue}
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Accoda queue contract"}
    return {**about, **_object(("queues",), description=text, queues=queues)}


def _object(required: tuple[str, ...], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}
