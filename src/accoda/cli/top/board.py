"""What is on the screen of `accoda top`, and what a key makes of it. Pure: no terminal, no store.

A key gives a new board and sometimes a deed, which the loop does; what came of it is said on the next board.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from accoda.admin.overview import Overview
from accoda.admin.views import JobView, QueueView
from accoda.admin.why import WhyView
from accoda.admin.workers import WorkerView

Page = Literal["queues", "workers", "job", "help"]
Act = Literal["pause", "resume", "replay", "retry", "cancel", "look"]

MOST_DIGITS = 19


class Deed(Struct, frozen=True):
    """Something to do: to a queue by its name, or to a job by its id."""

    act: Act
    queue: str = ""
    job: int = 0


class Look(Struct, frozen=True):
    """What the store told at one moment. `sparks`: jobs done a second, of each queue, the last one now."""

    overview: Overview
    workers: Sequence[WorkerView] = ()
    sparks: Mapping[str, Sequence[float]] = {}


class JobLook(Struct, frozen=True):
    """One job, and why it does not run."""

    job: JobView
    why: WhyView | None = None


class Board(Struct, frozen=True, kw_only=True):
    """The screen. `typed` is the id being typed after `/`; `asked` is what waits for a y."""

    look: Look | None = None
    page: Page = "queues"
    chosen: int = 0
    typed: str | None = None
    asked: Deed | None = None
    said: str = ""
    trouble: str = ""
    job: JobLook | None = None
    over: bool = False

    @property
    def queues(self) -> Sequence[QueueView]:
        return () if self.look is None else self.look.overview.queues

    @property
    def queue(self) -> QueueView | None:
        """The one under the cursor."""
        return self.queues[min(self.chosen, len(self.queues) - 1)] if self.queues else None


Pressed = tuple[Board, Deed | None]


def press(board: Board, key: str) -> Pressed:
    """What a key does."""
    board = replace(board, said="")
    if key == "ctrl-c":
        return replace(board, over=True), None
    if board.asked is not None:
        asked = board.asked if key in ("y", "Y") else None
        return replace(board, asked=None, said="" if asked else "Nothing was changed."), asked
    if board.typed is not None:
        return _type(board, board.typed, key)
    act = _KEYS.get(key)
    return (board, None) if act is None else act(board)


def _type(board: Board, typed: str, key: str) -> Pressed:
    if key == "escape":
        return replace(board, typed=None), None
    if key == "backspace":
        return replace(board, typed=typed[:-1]), None
    if key == "enter":
        done = replace(board, typed=None)
        return (done, Deed("look", job=int(typed))) if typed else (done, None)
    return (replace(board, typed=typed + key) if key.isdecimal() and len(typed) < MOST_DIGITS else board), None


def _move(by: int) -> Callable[[Board], Pressed]:
    def act(board: Board) -> Pressed:
        last = max(0, len(board.queues) - 1)
        return replace(board, chosen=max(0, min(last, min(board.chosen, last) + by))), None

    return act


def _pause(board: Board) -> Pressed:
    queue = board.queue
    if board.page != "queues" or queue is None:
        return board, None
    if queue.paused:
        return board, Deed("resume", queue.name)
    return replace(board, asked=Deed("pause", queue.name)), None


def _replay(board: Board) -> Pressed:
    if board.page == "job" and board.job is not None:
        return board, Deed("retry", job=board.job.job.id)
    queue = board.queue
    if board.page != "queues" or queue is None:
        return board, None
    if not queue.dead:
        return replace(board, said=f"{queue.name} has no dead letters."), None
    return replace(board, asked=Deed("replay", queue.name)), None


def _cancel(board: Board) -> Pressed:
    if board.page != "job" or board.job is None:
        return board, None
    return replace(board, asked=Deed("cancel", job=board.job.job.id)), None


def _go(page: Page) -> Callable[[Board], Pressed]:
    return lambda board: (replace(board, page="queues" if board.page == page else page), None)


def _leave(board: Board) -> Pressed:
    return (replace(board, over=True) if board.page == "queues" else replace(board, page="queues")), None


_KEYS: dict[str, Callable[[Board], Pressed]] = {
    "up": _move(-1),
    "k": _move(-1),
    "down": _move(1),
    "j": _move(1),
    "page-up": _move(-10),
    "page-down": _move(10),
    "home": _move(-1_000_000),
    "end": _move(1_000_000),
    "p": _pause,
    "r": _replay,
    "c": _cancel,
    "w": _go("workers"),
    "?": _go("help"),
    "h": _go("help"),
    "/": lambda board: (replace(board, typed=""), None),
    "enter": lambda board: (replace(board, typed="") if board.page == "queues" else board, None),
    "escape": lambda board: (replace(board, page="queues"), None),
    "q": _leave,
}

HELP: tuple[tuple[str, str], ...] = (
    ("↑ ↓ j k", "choose a queue"),
    ("p", "pause the queue, or resume it"),
    ("r", "replay the queue's dead letters; on a job: run it again, or now"),
    ("/ or Enter", "look at a job: type its id, then Enter"),
    ("c", "on a job: cancel it"),
    ("w", "workers and what they run"),
    ("? h", "these keys"),
    ("q Esc", "back; q on the first page ends"),
)


def question(deed: Deed, board: Board) -> str:
    """What is asked before it is done."""
    if deed.act == "pause":
        return f"Pause {deed.queue}? Running jobs go on. (y/n)"
    if deed.act == "cancel":
        return f"Cancel job {deed.job}? (y/n)"
    dead = next((queue.dead for queue in board.queues if queue.name == deed.queue), 0)
    return f"Replay {dead:,} dead {'letter' if dead == 1 else 'letters'} of {deed.queue}? (y/n)"
