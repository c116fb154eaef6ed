"""Look, draw, press, do; again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from rich.console import Console
from rich.live import Live

from accoda.admin import dead, history, jobs, overview, queues, why, workers
from accoda.admin.letters import DeadFilter
from accoda.cli.common import StoreOptions, width
from accoda.cli.top.board import Board, Deed, JobLook, Look, press
from accoda.cli.top.terminal import keyboard
from accoda.cli.top.view import overview_lines, screen
from accoda.errors import AccodaError, JobNotFound

if TYPE_CHECKING:
    from accoda.app import App

RATE_AFTER = 1.1
"""Seconds until a second look gives rates, where only one is printed."""


async def look(app: App, system: bool = False) -> Look:
    """What is shown of the store now."""
    over = await overview.overview(app, system=system)
    return Look(over, await workers.list(app), await history.sparks(app))


async def look_once(store: StoreOptions, system: bool) -> Look:
    """One look, with rates: they need two."""
    async with store.open() as app:
        await overview.overview(app, system=system)
        await asyncio.sleep(RATE_AFTER)
        return await look(app, system)


def print_once(seen: Look) -> None:
    """One look on standard output."""
    Console(width=width(), highlight=False, soft_wrap=False).print(overview_lines(seen, width()))


async def watch(store: StoreOptions, every: float, system: bool) -> None:
    """Until the user has seen enough."""
    console = Console(highlight=False)
    async with store.open() as app:
        with keyboard() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
            await Top(app, system, lambda board: live.update(screen(board, *console.size), refresh=True)).run(
                pressed, every
            )


class Top:
    """The board, and what happens to it."""

    def __init__(self, app: App, system: bool, show: Any) -> None:
        self.board = Board()
        self._app = app
        self._system = system
        self._show = show

    async def run(self, pressed: asyncio.Queue[str], every: float) -> None:
        """Look every few seconds and at once after a deed; draw after each key."""
        while not self.board.over:
            await self.refresh()
            self._show(self.board)
            with suppress(TimeoutError):
                async with asyncio.timeout(every):
                    while not self.board.over:
                        if await self.press(await pressed.get()):
                            break
                        self._show(self.board)

    async def refresh(self) -> None:
        """Look anew. A store that is away is said so, and looked at again: what was seen before stays."""
        try:
            self.board = replace(self.board, look=await look(self._app, self._system), trouble="")
            if self.board.page == "job" and self.board.job is not None:
                await self._look_at(self.board.job.job.id)
        except JobNotFound:
            self.board = replace(self.board, page="queues", job=None, said="The job has gone: it is done, or deleted.")
        except AccodaError as error:
            self.board = replace(self.board, trouble=str(error))

    async def press(self, key: str) -> bool:
        """Do what a key says; whether something was done, so that a new look is due."""
        self.board, deed = press(self.board, key)
        if deed is None:
            return False
        self._show(self.board)
        try:
            said = await self._do(deed)
        except AccodaError as error:
            said = str(error)
        self.board = replace(self.board, said=said)
        return True

    async def _do(self, deed: Deed) -> str:
        app = self._app
        match deed.act:
            case "pause":
                await queues.pause(app, deed.queue, who="accoda top")
                return f"{deed.queue} is paused."
            case "resume":
                await queues.resume(app, deed.queue)
                return f"{deed.queue} goes on."
            case "replay":
                done = await dead.replay(app, DeadFilter(queue=deed.queue))
                held = f"; {done.held:,} stay dead, others hold their keys" if done.held else ""
                return f"{done.revived:,} of {deed.queue} ready again{held}."
            case "retry":
                await jobs.retry(app, deed.job)
                return f"Job {deed.job} is ready."
            case "cancel":
                await jobs.cancel(app, deed.job)
                return f"Job {deed.job} was cancelled."
            case "look":
                await self._look_at(deed.job)
        return ""

    async def _look_at(self, id: int) -> None:
        job = await jobs.get(self._app, id)
        self.board = replace(self.board, page="job", job=JobLook(job, await why.why(self._app, id)))
