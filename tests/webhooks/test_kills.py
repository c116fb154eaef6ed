"""A process that is killed in the middle of a call loses nothing."""

import asyncio
import signal
import sys
import time
from pathlib import Path

from aiohttp import web
from webhook_calls import Calls, Receiver

from accoda.clock import ManualClock
from accoda.storage.open import open_storage

CHILD = str(Path(__file__).parent / "sender_child.py")


async def test_a_call_whose_caller_is_killed_is_made_again_with_the_same_id(tmp_path: Path) -> None:
    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    clock = ManualClock(time.time_ns() // 1_000_000)
    async with Receiver(hang) as receiver, await open_storage(url, clock=clock) as store:
        calls = Calls(store, clock)
        id = await calls.add(receiver.url)
        child = await asyncio.create_subprocess_exec(sys.executable, CHILD, url)
        try:
            async with asyncio.timeout(30):
                await receiver.called.wait()
        finally:
            child.send_signal(signal.SIGKILL)
            await child.wait()
        receiver.answer = 200
        assert await calls.loop().run_once(store) == 0  # the dead process still has its lease
        clock.advance(120)
        assert await calls.loop().run_once(store) == 1
        assert (await calls.info(id)).state == "done"
        assert len(receiver.got) == 2 and len({message.id for message in receiver.got}) == 1
        assert receiver.got[0].body == receiver.got[1].body
