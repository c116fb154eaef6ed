"""The functions that a user gives to a demand: their signatures, and how they become handlers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_args, get_origin

from accoda.demand.waiters import Waiter
from accoda.errors import InvalidInput
from accoda.payload import Codec
from accoda.runtime.handler import HandlerOptions


class Anything(Codec[Any]):
    """Reads nothing: for jobs whose content does not matter."""

    def decode(self, data: bytes) -> Any:
        return b""


def checked(options: HandlerOptions) -> HandlerOptions:
    if options.get("run_in") == "process":
        raise InvalidInput("run_in", "a demand's functions run on the loop or in a thread, not in a process")
    return options


def named(run: Callable[[Any], Any], function: Callable[..., Any]) -> Callable[[Any], Any]:
    """Let logs and errors speak of the user's function. Not functools.wraps: its signature is not the handler's."""
    run.__name__ = getattr(function, "__name__", "fetch")
    run.__module__, run.__doc__ = function.__module__, function.__doc__
    return run


def parameters_of(function: Callable[..., Any], what: str, *wanted: str) -> list[str]:
    """The names of a function's parameters, if there are as many as wanted."""
    if not callable(function):
        raise InvalidInput(what, f"decorates a function of {' and '.join(wanted)}, not {function!r:.60}")
    found = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    if len(found) != len(wanted) or any(p.kind is p.KEYWORD_ONLY for p in found):
        name = getattr(function, "__name__", repr(function))
        raise InvalidInput(what, f"{name} must take {' and '.join(wanted)}, and nothing else without a default")
    return [p.name for p in found]


def data_type(hint: Any) -> Any:
    return (get_args(hint) or (Any,))[0] if get_origin(hint) is Waiter else Any
