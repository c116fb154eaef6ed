"""From the parameters of a function to values, by FastAPI's words: `Annotated[Session, Depends(get_session)]`.

FastAPI's own resolver needs a request. This one needs none: a job has none. It knows dependencies of dependencies,
plain and async functions, classes, and generators, whose rest runs when the `stack` is closed. What a function wants of
a request is refused before anything runs.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Annotated, Any, get_args, get_origin

from msgspec import Struct
from starlette.background import BackgroundTasks
from starlette.requests import HTTPConnection
from starlette.responses import Response

from accoda.errors import InvalidInput
from accoda.handler_options import hints_of

try:
    from fastapi import params
    from fastapi.security import SecurityScopes
except ModuleNotFoundError:  # Starlette alone: there are no dependencies then
    params, SecurityScopes = None, None  # type: ignore[assignment, misc]

Provider = Callable[..., Any]
Overrides = Mapping[Provider, Provider]


class Need(Struct, frozen=True):
    """A parameter and what gives its value. `provider` None: the request itself."""

    parameter: str
    provider: Provider | None
    use_cache: bool = True


class Resolver:
    """Calls functions with the values of their dependencies. `web`: there is a request. `given`: values that are known,
    by what would provide them."""

    def __init__(self, *, web: bool = False, given: Mapping[Provider, Any] | None = None) -> None:
        self._web = web
        self._given = given or {}
        self._known: dict[tuple[Provider, int], tuple[Need, ...]] = {}
        self._checked: set[tuple[Provider, bool]] = set()

    def check(self, function: Provider, skip: int = 0, blocking: bool = False, within: str = "") -> tuple[Need, ...]:
        """The dependencies of a function, after `skip` parameters. Refuses what they cannot have, all the way down."""
        name = within + _name(function)
        needs = self._needs(function, skip, name)
        for each in needs:
            if each.provider is None or each.provider in self._given or (each.provider, blocking) in self._checked:
                continue
            if blocking and _is_async(each.provider):
                raise InvalidInput(
                    "handler",
                    f"{_name(each.provider)}, which {name} depends on, is async, and a plain function cannot await it; "
                    "make the handler `async def`",
                )
            self.check(each.provider, 0, blocking, f"{name} → ")
            self._checked.add((each.provider, blocking))
        return needs

    async def call(self, function: Provider, overrides: Overrides, request: HTTPConnection) -> Any:
        """Call a function with its dependencies, and close them."""
        async with AsyncExitStack() as stack:
            run = Run(self, stack, overrides, request)
            return await run.value_of(function, await run.values(self._needs(function, 0, _name(function))))

    def _needs(self, function: Provider, skip: int, name: str) -> tuple[Need, ...]:
        found = self._known.get((function, skip))
        if found is None:
            found = self._known[function, skip] = tuple(self._read(function, skip, name))
        return found

    def _read(self, function: Provider, skip: int, name: str) -> list[Need]:
        hints = hints_for(function)
        parameters = [each for each in inspect.signature(function).parameters.values() if each.kind not in _VARIABLE]
        found = [self._need(each, hints.get(each.name, Any), name) for each in parameters[skip:]]
        return [need for need in found if need is not None]

    def _need(self, parameter: inspect.Parameter, hint: Any, name: str) -> Need | None:
        kind, marks = _kind_and_marks(parameter, hint)
        depends = _depends(marks)
        if depends is not None:
            provider = depends.dependency or kind
            if provider is Any or not callable(provider):
                problem = (
                    f"the parameter {parameter.name!r} of {name} depends on {provider!r:.80}, which is no function"
                )
                raise InvalidInput("handler", f"{problem} or class; write Depends(get_session), without calling it")
            return Need(parameter.name, provider, depends.use_cache)
        plain = parameter.annotation is parameter.empty and parameter.default is parameter.empty
        if self._web and (plain or (isinstance(kind, type) and issubclass(kind, HTTPConnection))):
            return Need(parameter.name, None)
        of_request = isinstance(kind, type) and issubclass(kind, _OF_A_REQUEST)
        if of_request or _is_of_request(marks) or parameter.default is parameter.empty:
            lacking = "is no dependency" if self._web else "would come from a web request, and a job has none"
            advice = "leave it out, or make it one: Annotated[…, Depends(…)]"
            raise InvalidInput("handler", f"the parameter {parameter.name!r} of {name} {lacking}; {advice}")
        return None


class Run:
    """One call of a function: its dependencies, each provided once."""

    def __init__(
        self,
        resolver: Resolver,
        stack: AsyncExitStack,
        overrides: Overrides,
        request: HTTPConnection | None = None,
        blocking: bool = False,
    ) -> None:
        self._resolver = resolver
        self._stack = stack
        self._overrides = overrides
        self._request = request
        self._blocking = blocking
        self._cache: dict[Provider, Any] = dict(resolver._given)

    async def values(self, needs: tuple[Need, ...]) -> dict[str, Any]:
        """A value for each parameter."""
        return {each.parameter: await self._value(each) for each in needs}

    async def _value(self, need: Need) -> Any:
        if need.provider is None:
            return self._request
        provider = self._overrides.get(need.provider, need.provider)
        if need.use_cache and provider in self._cache:
            return self._cache[provider]
        # An override is first seen here, and may want what it cannot have.
        if self._blocking and _is_async(provider):
            problem = f"{_name(provider)} is async, and the plain handler cannot await it; override with a `def`"
            raise InvalidInput("dependency_overrides", problem)
        needs = self._resolver.check(provider, 0, self._blocking)
        value = await self.value_of(provider, await self.values(needs))
        return self._cache.setdefault(provider, value) if need.use_cache else value

    async def value_of(self, provider: Provider, arguments: dict[str, Any]) -> Any:
        """What a function gives. The rest of a generator is left to the stack."""
        if _is(inspect.isasyncgenfunction, provider):
            return await self._stack.enter_async_context(asynccontextmanager(provider)(**arguments))
        if _is(inspect.iscoroutinefunction, provider):
            return await provider(**arguments)
        if _is(inspect.isgeneratorfunction, provider):
            manager = contextmanager(provider)(**arguments)
            return (
                self._stack.enter_context(manager)
                if self._blocking
                else await self._stack.enter_async_context(_in_thread(manager))
            )
        # It may block: on the loop of a worker it would hold up every other job.
        return provider(**arguments) if self._blocking else await asyncio.to_thread(partial(provider, **arguments))


def dependency_of(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
    """The `Depends` of a parameter; None: it is no dependency."""
    return _depends(_kind_and_marks(parameter, hints.get(parameter.name, Any))[1])


def _kind_and_marks(parameter: inspect.Parameter, hint: Any) -> tuple[Any, list[Any]]:
    """The type of a parameter, and what else is said of it: beside the type, or as its default."""
    if get_origin(hint) is not Annotated:
        return hint, [parameter.default]
    return get_args(hint)[0], [*hint.__metadata__, parameter.default]


def _depends(marks: list[Any]) -> Any:
    found = [mark for mark in marks if params is not None and isinstance(mark, params.Depends)]
    return found[-1] if found else None


_OF_A_REQUEST: tuple[type, ...] = (HTTPConnection, Response, BackgroundTasks)
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
if SecurityScopes is not None:
    _OF_A_REQUEST += (SecurityScopes,)


def _is_of_request(marks: list[Any]) -> bool:
    """Whether one of them says that the value is a part of a request: `Query()`, `Header()`, `Body()`."""
    return params is not None and any(isinstance(mark, params.Param | params.Body) for mark in marks)


def hints_for(function: Provider) -> dict[str, Any]:
    """The annotations of a function, of a class's constructor, or of an object that is called like a function."""
    while isinstance(function, partial):
        function = function.func
    return hints_of(getattr(function, "__init__") if isinstance(function, type) else function)  # noqa: B009


def _name(function: Provider) -> str:
    return str(getattr(function, "__name__", function))


def _is(test: Callable[[Any], bool], provider: Provider) -> bool:
    """A test of a function, also for one behind a decorator and for an object that is called like a function."""
    while isinstance(provider, partial):
        provider = provider.func
    provider = inspect.unwrap(provider)
    if isinstance(provider, type):  # its `__call__` is that of the objects that it makes
        return False
    return test(provider) or test(inspect.unwrap(getattr(provider, "__call__", provider)))  # noqa: B004


def _is_async(provider: Provider) -> bool:
    return _is(inspect.isasyncgenfunction, provider) or _is(inspect.iscoroutinefunction, provider)


@asynccontextmanager
async def _in_thread(manager: AbstractContextManager[Any]) -> AsyncIterator[Any]:
    """A plain context manager, entered and left in threads."""
    entering = asyncio.ensure_future(asyncio.to_thread(manager.__enter__))
    try:
        value = await asyncio.shield(entering)
    except asyncio.CancelledError:
        # A thread cannot be cancelled: it may have opened something by now, which nobody else would close.
        with suppress(Exception):
            await entering
            await asyncio.to_thread(manager.__exit__, None, None, None)
        raise
    try:
        yield value
    except BaseException as error:
        if not await asyncio.to_thread(manager.__exit__, type(error), error, error.__traceback__):
            raise
    else:
        await asyncio.to_thread(manager.__exit__, None, None, None)
