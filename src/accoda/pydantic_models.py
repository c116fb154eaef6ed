"""Payloads and results that are pydantic models, or have some in them.

Pydantic is not imported here: where a model comes along, its program has imported it. A model is stored as a map of its
fields by name, and is validated when it is read.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec


def to_plain(value: Any) -> Any:
    """What msgspec stores of an object that it does not know: the fields of a model."""
    if not _is_model(type(value)):
        raise TypeError(f"there is an object of the class {type(value).__name__} in it")
    # Not as JSON: that would store asterisks in the place of a SecretStr.
    fields = value.model_dump(by_alias=False, warnings="none")  # what is wrong with it is refused when it is read
    return msgspec.to_builtins(fields, builtin_types=(bytes, bytearray, memoryview), enc_hook=_leaf)


def from_plain(kind: Any, value: Any) -> Any:
    """A value as a type that msgspec does not know. What is no model is given back: msgspec refuses it then."""
    if not _is_model(kind):
        return value
    try:
        return kind.model_validate(value, by_alias=True, by_name=True)
    except ValueError as error:  # pydantic's own is one
        found = getattr(error, "errors", None)
        if found is None:
            raise
        first = found(include_url=False, include_input=False)[0]
        path = ".".join(map(str, first["loc"]))
        raise ValueError(f"{path}: {first['msg']}" if path else first["msg"]) from None


def _is_model(kind: Any) -> bool:
    return hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate")


def _leaf(value: Any) -> Any:
    """What is in a model and is known to pydantic alone: URLs, paths, addresses."""
    if hasattr(value, "get_secret_value"):
        raise TypeError(f"{type(value).__name__} would be readable in the store; send a reference to the secret")
    return sys.modules["pydantic_core"].to_jsonable_python(value)
