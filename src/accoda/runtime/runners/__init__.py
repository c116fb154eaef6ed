"""How handlers are run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accoda.runtime.batch import Runner
from accoda.runtime.handler import Handler
from accoda.runtime.middleware import Middleware
from accoda.runtime.runners.base import BaseRunner


def make_runner(handler: Handler[Any, Any, Any], middleware: Sequence[Middleware] = ()) -> Runner:
    """The runner for where a handler wants to run. One that cannot run there is told now, not at its first job."""
    runner = _bare(handler)
    if not middleware:
        return runner
    from accoda.runtime.runners.layers import LayeredRunner

    return LayeredRunner(runner, middleware)


def _bare(handler: Handler[Any, Any, Any]) -> BaseRunner:
    match handler.options.run_in:
        case "loop":
            from accoda.runtime.runners.loop import LoopRunner

            return LoopRunner(handler)
        case "thread":
            from accoda.runtime.runners.thread import ThreadRunner

            return ThreadRunner(handler)
        case "process":
            from accoda.runtime.runners.process import ProcessRunner

            return ProcessRunner(handler)
