"""Part `delayed`: a million delayed jobs that come due within one minute, run by one worker process as they come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.scale.crew import Crew
from benchmarks.scale.load import LOADERS, Order, load
from benchmarks.scale.places import PLACES, Place
from benchmarks.scale.record import Progress
from benchmarks.scale.sizes import Sizes
from benchmarks.scale.worker import Order as WorkOrder

QUEUE = "delayed"
BATCH, PROCESSORS = 500, 4


def fill(place: Place, sizes: Sizes, tell: Callable[[str], None]) -> tuple[float, float]:
    """Store them, all before the first comes due. How long that takes is seen by a part of them, kept in the future."""
    trial, loaders = max(1000, sizes.delayed // 20), LOADERS[place.name]
    far = time.time() + 1e6
    seconds = load(Order(place.url, "trial", trial, far, far + 60), loaders).seconds
    patience = 1.5 * seconds * sizes.delayed / trial + sizes.beforehand
    begin = time.time() + patience
    load(Order(place.url, QUEUE, sizes.delayed, begin, begin + sizes.window), loaders, tell)
    return begin, begin - time.time()


def watch(crew: Crew, begin: float, sizes: Sizes) -> list[dict[str, float]]:
    """Each second of the window and after it: how many were due, how many had run."""
    steps: list[dict[str, float]] = []
    step = max(0.1, sizes.window / 60)

    def note(now: float) -> None:
        due = int(sizes.delayed * min(1.0, max(0.0, now / sizes.window)))
        steps.append({"at": round(now, 2), "due": due, "ran": crew.ran, "backlog": max(0, due - crew.ran)})

    def look() -> None:
        if (now := time.time() - begin) >= len(steps) * step:
            note(now)

    crew.wait_for(sizes.delayed, look)
    note(time.time() - begin)
    return steps


def measure(name: str, sizes: Sizes, tell: Callable[[str], None]) -> dict[str, Any]:
    with PLACES[name]() as place:
        begin, ahead = fill(place, sizes, tell)
        order = WorkOrder(place.url, QUEUE, "", batch=BATCH, processors=PROCESSORS, late=True)
        with Crew(place, order, 1) as crew:
            tell(f"all stored {ahead:.1f} s before the first is due")
            before = crew.used()
            steps = watch(crew, begin, sizes)
            whole, used = time.time() - begin, crew.used().since(before)
            late = sorted(crew.stop()[0]["late"])
    backlog = max(step["backlog"] for step in steps)
    due_rate = sizes.delayed / sizes.window
    return {
        "jobs": sizes.delayed,
        "stored_ahead": ahead,
        "window": sizes.window,
        "all_ran_after": whole,
        "due_rate": due_rate,
        "median_ms": late[len(late) // 2] * 1000,
        "p99_ms": late[int(len(late) * 0.99)] * 1000,
        "worst_ms": late[-1] * 1000,
        "early": sum(one < 0 for one in late),
        "worst_backlog": backlog,
        # A backlog that is worked off in less than a second is a burst; what grows for longer is a worker too slow.
        "keeps_up": backlog < due_rate,
        "client": used[0] / sizes.delayed,
        "server": used[1] / sizes.delayed,
        "steps": steps,
    }


def run(storages: list[str], sizes: Sizes, progress: Progress) -> dict[str, Any]:
    result: dict[str, Any] = {"jobs": sizes.delayed, "window": sizes.window}
    for name in storages:
        result[name] = measure(name, sizes, lambda text, name=name: progress.tell(f"{name}: {text}", often=True))  # type: ignore[misc]
        found = result[name]
        progress.tell(f"{name}: late by {found['median_ms']:.1f} ms (median), {found['worst_ms']:.0f} (worst)")
    return result
