"""The JSON Schema of the contract format, for completion and checks in editors."""

from __future__ import annotations

from typing import Any

from accoda.contract.loader import MOST_FIELDS, MOST_ID, MOST_NAME, MOST_QUEUES, MOST_TEXT, NAME, RESERVED
from accoda.contract.model import FIELD_TYPES
from accoda.settings.knobs import QUEUE_KNOBS


def schema() -> dict[str, Any]:
    """What `accoda contract schema` prints. The loader checks more: duplicates, order of defaults, words of Python."""
    name = {"type": "string", "pattern": f"^{NAME.pattern}$", "maxLength": MOST_NAME}
    text = {"type": "string", "maxLength": MOST_TEXT}
    field = {
        "type": "object",
        "additionalProperties": False,
        "required": ["name", "type"],
        "properties": {
            "name": {**name, "not": {"enum": list(RESERVED)}, "description": "The field's name in Python."},
            "type": {"enum": list(FIELD_TYPES), "description": "What it holds."},
            "description": {**text, "description": "For people."},
            "optional": {"type": "boolean", "description": "Whether it may be null. It is, where it is not given."},
            "default": {"description": "Its value where it is not given, and in jobs that were stored before it was."},
        },
    }
    queue = {
        "type": "object",
        "additionalProperties": False,
        "required": ["id", "name", "fields"],
        "properties": {
            "id": {"type": "integer", "minimum": 1, "maximum": MOST_ID, "description": "A number of its own."},
            "name": {**name, "description": "The queue's name."},
            "description": {**text, "description": "For people."},
            "fields": {"type": "array", "minItems": 1, "maxItems": MOST_FIELDS, "items": field},
            "batch_size": {
                "type": "integer",
                "minimum": int(QUEUE_KNOBS["batch_size"].low),
                "maximum": int(QUEUE_KNOBS["batch_size"].high),
                "description": QUEUE_KNOBS["batch_size"].help,
            },
            "visibility_timeout": {
                "type": ["number", "string"],
                "description": QUEUE_KNOBS["visibility_timeout"].help,
            },
            "max_attempts": {"type": ["integer", "string"], "description": QUEUE_KNOBS["max_attempts"].help},
            "policy": {"enum": ["strict", "aging"], "description": "How priorities order its jobs."},
            "cost": {
                "type": "integer",
                "minimum": 0,
                "maximum": 1 << 53,
                "description": "What a job takes of a budget.",
            },
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Accoda queue contract",
        "type": "object",
        "additionalProperties": False,
        "required": ["queues"],
        "properties": {
            "description": text,
            "queues": {"type": "array", "minItems": 1, "maxItems": MOST_QUEUES, "items": queue},
        },
    }
