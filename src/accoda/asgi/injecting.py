"""Dependencies in handlers, by FastAPI's own words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import wraps
from typing import Any, Concatenate, TypeVar, overload

from accoda.app import App
from accoda.asgi.lifespan import get_app
from accoda.asgi.mounting import check_app
from accoda.asgi.resolving import Need, Resolver, Run, dependency_of, hints_for
from accoda.errors import InvalidInput
from accoda.handler_options import is_coroutine_function

T = TypeVar("T")
V = TypeVar("V")
Awaits = Coroutine[Any, Any, V]


class Injector:
    """Gives the handlers of an app what they depend on, for each run anew.

        inject = Injector(app)

        @app.handler("emails")
        @inject
        async def send(email: Email, session: Annotated[Session, Depends(get_session)]) -> None: ...

    The first parameter is the payload (or the batch); the others are dependencies. Each is provided once for a run, and
    generators are closed after it, from the last to the first: if the handler raises, the exception is raised in them.
    `dependency_overrides` is for tests, as in FastAPI; `web.dependency_overrides = inject.dependency_overrides` makes
    one dictionary of both.
    """

    def __init__(self, app: App) -> None:
        check_app(app)
        self.dependency_overrides: dict[Callable[..., Any], Callable[..., Any]] = {}
        self._resolver = Resolver(given={get_app: app})

    # A coroutine function also fits the form of a plain one, so its form comes first.
    @overload
    def __call__(self, function: Callable[Concatenate[T, ...], Awaits[V]], /) -> Callable[[T], Awaits[V]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[T, ...], V], /) -> Callable[[T], V]: ...

    def __call__(self, function: Callable[..., Any], /) -> Callable[[Any], Any]:
        """Make a function of the payload alone. Refuses dependencies that need a web request."""
        payload = _payload(function)
        if is_coroutine_function(function):
            needs = self._resolver.check(function, 1)

            @wraps(function)
            async def injected(payload: Any) -> Any:
                return await self._run(function, needs, payload)
        else:
            needs = self._resolver.check(function, 1, blocking=True)

            @wraps(function)
            def injected(payload: Any) -> Any:
                return _without_waiting(self._run(function, needs, payload, blocking=True))

        signature = inspect.signature(function)
        injected.__signature__ = signature.replace(parameters=[payload])  # type: ignore[attr-defined]
        return injected

    async def _run(
        self, function: Callable[..., Any], needs: tuple[Need, ...], payload: Any, blocking: bool = False
    ) -> Any:
        failure: BaseException
        async with AsyncExitStack() as stack:
            run = Run(self._resolver, stack, self.dependency_overrides, blocking=blocking)
            try:
                result = function(payload, **await run.values(needs))
                return result if blocking else await result
            except BaseException as error:
                failure = error
                raise
        # A generator that catches the exception and does not raise it again ends the block as if all were well. The
        # handler has failed all the same.
        raise failure


def _payload(function: Callable[..., Any]) -> inspect.Parameter:
    """The first parameter, which must not be a dependency."""
    name = getattr(function, "__name__", repr(function))
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or dependency_of(first, hints_for(function)) is not None:
        problem = f"the first parameter of {name} has to be the payload; if it has none, write `_: None`"
        raise InvalidInput("handler", problem)
    return first


def _without_waiting(call: Coroutine[Any, Any, V]) -> V:
    """The result of a coroutine that awaits nothing: all that a plain handler depends on is plain, too."""
    try:
        call.send(None)
    except StopIteration as ended:
        result: V = ended.value
        return result
    call.close()
    raise RuntimeError("a plain handler depends on something that has to be awaited")
