"""A contract that has been read and checked: values only, without positions."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from accoda.contract.queue_settings import QueueSettings

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A whole number of 64 bits."""


class FieldType(Struct, frozen=True):
    """One type of the contract: its word there, its name in Python code, and the type itself."""

    word: str
    python: str
    annotation: Any


# `int` has 64 bits, as in Go, for which the format was made.
FIELD_TYPES: dict[str, FieldType] = {
    found.word: found
    for found in (
        FieldType("int", "Int64", Int64),
        FieldType("int64", "Int64", Int64),
        FieldType("string", "str", str),
        FieldType("bool", "bool", bool),
        FieldType("[]byte", "bytes", bytes),
        FieldType("[]int", "list[Int64]", list[Int64]),
        FieldType("[]int64", "list[Int64]", list[Int64]),
        FieldType("float", "float", float),
        FieldType("[]string", "list[str]", list[str]),
    )
}


class Field(Struct, frozen=True):
    """One field of a job. Without a `default` it is required; an `optional` one may be None."""

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
        """The value of a job that does not give this field: its default, or None if it is optional."""
        return None if isinstance(self.default, UnsetType) else self.default


class Queue(Struct, frozen=True):
    """One kind of job: its number, its name and its fields, in the order of the wire.

    It has a queue of its own name, unless it says the `queue` that it shares with others; then its jobs have a `type`,
    which is its name unless it says another.
    """

    id: int
    name: str
    fields: tuple[Field, ...]
    description: str = ""
    settings: QueueSettings = QueueSettings()
    queue: str | None = None
    type: str | None = None

    @property
    def queue_name(self) -> str:
        """The queue that its jobs are in."""
        return self.queue or self.name

    @property
    def type_name(self) -> str | None:
        """The type of its jobs; None: it is the only kind in its queue, and says no type."""
        return self.name if self.type is None and self.queue is not None else self.type

    @property
    def class_name(self) -> str:
        """The base of its class names.

        >>> Queue(1, "new_orders", ()).class_name
        'NewOrders'
        """
        return "".join(part.capitalize() for part in self.name.split("_"))


class Contract(Struct, frozen=True):
    """All queues of a file, in its order."""

    queues: tuple[Queue, ...]
    description: str = ""

    def sharing(self, queue_name: str) -> list[Queue]:
        """The kinds of job in a queue."""
        return [queue for queue in self.queues if queue.queue_name == queue_name]

    def queue(self, name: str) -> Queue | None:
        return next((queue for queue in self.queues if queue.name == name), None)
