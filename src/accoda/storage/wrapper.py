"""What stands in front of a storage (metrics, faults, a recorder) and passes every verb on: written once for all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from accoda.storage.common.closing import Closing
from accoda.storage.protocol import VERBS


class Wrapper(Closing):
    """Has every verb of `Store`; each of them is `call(verb, *args, **kwargs)`. Subclasses say what a call does."""

    async def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def _forward(verb: str) -> Callable[..., Awaitable[Any]]:
    def forward(self: Wrapper, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        return self.call(verb, *args, **kwargs)

    forward.__name__ = verb
    return forward


for _verb in VERBS:
    setattr(Wrapper, _verb, _forward(_verb))
