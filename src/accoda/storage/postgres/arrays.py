"""Tells the driver of the array types that the calls use, so that it need not ask.

asyncpg knows the plain types, and asks the server for every other that it meets, on each new connection: a question of
the catalog that costs the server more than a hundred jobs do. But arrays of plain types have the same numbers in every
PostgreSQL.
"""

from __future__ import annotations

import contextlib
from typing import Any

# Name, number of the array, number of its elements: pg_type.dat of the server.
_ARRAYS = (
    ("_bool", 1000, 16),
    ("_bytea", 1001, 17),
    ("_int2", 1005, 21),
    ("_int4", 1007, 23),
    ("_text", 1009, 25),
    ("_int8", 1016, 20),
    ("_float8", 1022, 701),
)
_NOTHING = ("basetype", "basetype_name", "range_subtype", "range_subtype_name", "attrtypoids", "attrnames")
# As the driver's own question would be answered.
_RECORDS = [
    {"oid": oid, "ns": "pg_catalog", "name": name, "kind": b"b", "elemtype": element, "elemdelim": ","}
    | dict.fromkeys(_NOTHING)
    for name, oid, element in _ARRAYS
]


def teach(connection: Any) -> None:
    """The way is not a public one: where a later driver has another, it asks the server, as before."""
    with contextlib.suppress(AttributeError, LookupError, TypeError):
        connection._protocol.get_settings().register_data_types(_RECORDS)
