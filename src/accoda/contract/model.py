"""A contract that has been read: values only, no positions and no text that was not checked."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from accoda.settings.knobs import Number


class FieldType(Struct, frozen=True):
    """One type of the contract: its word there, how Python code names it, and what it is on the wire."""

    word: str
    python: str
    wire: str


_INT64 = "a whole number from -2^63 to 2^63-1"

# `int` is as long as Go's, which the format was made with: 64 bits.
FIELD_TYPES: dict[str, FieldType] = {
    found.word: found
    for found in (
        FieldType("int", "Int64", f"integer; {_INT64}"),
        FieldType("int64", "Int64", f"integer; {_INT64}"),
        FieldType("string", "str", "str, UTF-8"),
        FieldType("bool", "bool", "true or false"),
        FieldType("[]byte", "bytes", "bin"),
        FieldType("[]int", "list[Int64]", f"array of integers; {_INT64}"),
        FieldType("[]int64", "list[Int64]", f"array of integers; {_INT64}"),
        # Beyond the first version of the format:
        FieldType("float", "float", "float 64"),
        FieldType("[]string", "list[str]", "array of str"),
    )
}


class Field(Struct, frozen=True):
    """One field of a job. Without a `default` it must be given; an `optional` one may be None."""

    name: str
    type: FieldType
    description: str = ""
    optional: bool = False
    default: Any = UNSET

    @property
    def python(self) -> str:
        """Its type in Python code."""
        return f"{self.type.python} | None" if self.optional else self.type.python

    @property
    def has_default(self) -> bool:
        return self.optional or not isinstance(self.default, UnsetType)

    @property
    def given_default(self) -> Any:
        """What a job has that says nothing of this field: its default, or None if it is optional."""
        return None if isinstance(self.default, UnsetType) else self.default


class QueueSettings(Struct, frozen=True):
    """What a contract may set of a queue; None: not said."""

    batch_size: Number = None
    visibility_timeout: Number = None
    max_attempts: Number = None
    policy: str | None = None
    cost: int | None = None

    def given(self) -> dict[str, Any]:
        """Those that were said, by name."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}


class Queue(Struct, frozen=True):
    """One queue: its number, its name and what its jobs carry, in the order of the wire."""

    id: int
    name: str
    fields: tuple[Field, ...]
    description: str = ""
    settings: QueueSettings = QueueSettings()

    @property
    def class_name(self) -> str:
        """
        >>> Queue(1, "new_orders", ()).class_name
        'NewOrders'
        """
        return "".join(part.capitalize() for part in self.name.split("_"))


class Contract(Struct, frozen=True):
    """All queues of a file, in its order."""

    queues: tuple[Queue, ...]
    description: str = ""

    def queue(self, name: str) -> Queue | None:
        return next((queue for queue in self.queues if queue.name == name), None)
