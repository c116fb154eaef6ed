"""Errors on their way from a child process to its worker, as plain values: nothing is pickled, nothing is imported.

What the worker builds of them is decided here, by a table. Errors of Python and of Accoda come out as themselves. All
others come out as a `RemoteError` whose class has the same name, and which is also what the table has of their bases.
"""

from __future__ import annotations

import asyncio
import builtins
import traceback
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any

from msgspec import Struct

from accoda import errors
from accoda.errors import BuryJob, InvalidInput, RateLimited, RemoteError, RetryLater
from accoda.limits import TEXT
from accoda.model import clean
from accoda.retry import cause_of, describe

Plain = str | int | float | bool | None
_PLAIN = (str, int, float, bool, type(None))
_MOST_ARGS, _MOST_KINDS = 8, 32
_OURS = str(Path(__file__).parents[1])


class Raised(Struct):
    """An error in a message. `args` are its arguments if all of them are plain, else there are none. `cause` is the
    error that a retry was asked for."""

    kinds: list[str]
    text: str
    trace: str
    args: list[Plain] | None = None
    delay: float | timedelta | None = None
    at: datetime | int | None = None
    budget: str | None = None
    priority: int | str | None = None
    cause: Raised | None = None


class RemoteTraceback(Exception):
    """The cause of an error that was raised in a child process: the text of its traceback.

    That of a `RetryLater`, whose cause says something else, is its context.
    """

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def pack(error: BaseException) -> Raised:
    """An error, to be sent."""
    raised = Raised(
        [_dotted(kind) for kind in type(error).__mro__[:-1]][:_MOST_KINDS],
        describe(error).removeprefix(type(error).__name__).removeprefix(": "),
        clean(_last_lines("".join(traceback.format_exception(type(error), error, users_frames(error))))),
        _plain_args(error),
    )
    if isinstance(error, RetryLater):
        if (cause := cause_of(error)) is not None:
            raised.text, raised.cause = clean(str(error.reason)), pack(cause)
        if isinstance(error.delay, (int, float, timedelta)):
            raised.delay = error.delay
        if isinstance(error.at, (int, datetime)):
            raised.at = error.at
        if error.priority is not None:  # what is no priority is refused by the worker, by its text
            known = isinstance(error.priority, (int, str)) and _is_small(error.priority)
            raised.priority = error.priority if known else clean(f"{error.priority!r:.80}")
        if isinstance(error, RateLimited) and isinstance(error.budget, str):
            raised.budget = clean(error.budget)
        wrong = error.delay if raised.delay is None else error.at if raised.at is None else None
        if wrong is not None:  # the rule says when, and the reason why, as where the handler runs in the worker
            return pack(InvalidInput("delay", f"RetryLater takes seconds or a moment, not {wrong!r:.80}"))
    return raised


def _last_lines(text: str) -> str:
    """As much of its end as may be kept, in whole lines if there are any: half of a secret might not be found later."""
    end = text[-TEXT:]
    return end if len(text) <= TEXT else end.partition("\n")[2] or end


def users_frames(error: BaseException) -> TracebackType | None:
    """The traceback of an error, without our own frames around the handler."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return trace


def unpack(raised: Raised) -> BaseException:
    """The error that was sent, or what stands for it, so that a retry rule can look at it."""
    error, trace = _rebuild(raised), RemoteTraceback(raised.trace)
    if isinstance(error, RetryLater):
        error.__context__, error.__cause__ = trace, None if raised.cause is None else unpack(raised.cause)
    else:
        error.__cause__ = trace
    return error


def remote_trace(error: BaseException) -> str | None:
    """The traceback of an error that was raised in a child process; None: it was raised here."""
    for one in (error.__cause__, error.__context__):
        if isinstance(one, RemoteTraceback):
            return str(one.args[0])
    return None


def _rebuild(raised: Raised) -> BaseException:
    kinds = raised.kinds or ["Exception"]
    name = clean(kinds[0].rpartition(".")[2])[:100] or "Exception"
    exact = _KINDS.get(kinds[0])
    if exact is not None:
        try:
            return _BUILDERS.get(exact, _from_args)(exact, raised)
        except Exception:  # it was made with other arguments than the class takes
            exact = None
    for base in [_KINDS[kind] for kind in kinds if kind in _KINDS]:
        if base in _BUILDERS:  # a class of the user's that says what becomes of the job
            return _BUILDERS[base](_named(name, base), raised)
        if not issubclass(base, Exception):  # SystemExit and its like must not be an Exception too
            plain: BaseException = base(raised.text)
            return plain
        if base in _BASES:
            return _remote(_named(name, RemoteError, base), raised)
    return _remote(_named(name, RemoteError), raised)


def _remote(kind: Any, raised: Raised) -> RemoteError:
    error: RemoteError = kind()
    error.kinds = tuple(raised.kinds)
    error.kind = raised.kinds[0] if raised.kinds else ""
    error.text = raised.text
    return error


@lru_cache(1024)
def _named(name: str, *bases: Any) -> Any:
    """A class that only has that name: what a job's reason begins with."""
    return type(name, bases, {"__doc__": "Stands for an error of a child process.", "__slots__": ()})


def _from_args(kind: Any, raised: Raised) -> BaseException:
    error: BaseException = kind(*(raised.args if raised.args is not None else [raised.text]))
    return error


def _plain_args(error: BaseException) -> list[Plain] | None:
    args = error.args
    if isinstance(error, OSError) and error.filename is not None:  # which it keeps apart
        args = (*args, error.filename)
    if len(args) > _MOST_ARGS or not all(type(value) in _PLAIN and _is_small(value) for value in args):
        return None
    return list(args)


def _is_small(value: Any) -> bool:
    if isinstance(value, str):
        return clean(value) == value
    return not isinstance(value, int) or abs(value) < 1 << 63


def _dotted(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _errors_of(module: Any) -> list[type[BaseException]]:
    found = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, BaseException)]
    return [kind for kind in found if not issubclass(kind, (Warning, BaseExceptionGroup))]


_BUILDERS: dict[Any, Callable[[Any, Raised], BaseException]] = {
    RateLimited: lambda kind, said: kind(said.delay, at=said.at, budget=said.budget, reason=said.text),
    RetryLater: lambda kind, said: kind(said.text, delay=said.delay, at=said.at, priority=said.priority),
    BuryJob: lambda kind, said: kind(said.text),
    InvalidInput: lambda kind, said: kind(*said.text.partition(": ")[::2]),
}
_NEVER = (StopIteration, StopAsyncIteration, GeneratorExit)  # to raise one of these in a coroutine means something else
# Every class that the worker may build. Names from a message are only ever looked up here.
_KINDS: dict[str, Any] = {
    _dotted(kind): kind
    for kind in (*_errors_of(builtins), *_errors_of(errors), asyncio.CancelledError)
    if kind not in (Exception, BaseException, errors.AccodaError, RemoteError, *_NEVER)
}


def _can_be_base(kind: Any) -> bool:
    """Whether it can stand beside RemoteError: it is made without arguments."""
    try:
        _named("Probe", RemoteError, kind)()
    except (TypeError, InvalidInput):
        return False
    return True


_BASES = frozenset(kind for kind in _KINDS.values() if issubclass(kind, Exception) and _can_be_base(kind))
