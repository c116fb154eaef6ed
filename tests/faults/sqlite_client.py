"""A process that uses a SQLite store, one command a line: "enqueue" or "work". It answers with one line for each."""

from __future__ import annotations

import asyncio
import sys

from accoda import Done, NewJob, open_storage
from accoda.errors import StorageError


async def main(url: str) -> None:
    async with await open_storage(url) as store:
        say("ready")
        while command := (await asyncio.to_thread(sys.stdin.readline)).strip():
            try:
                if command == "enqueue":
                    answers = await store.enqueue([NewJob("work", b"x" * 1000)] * 20)
                    say("ok " + " ".join(str(answer.id) for answer in answers))
                else:
                    jobs = await store.take("work", 1000)
                    refused = await store.settle([Done(job.lease) for job in jobs])
                    say("ok " + " ".join(str(job.id) for job in jobs) + (" refused" if refused else ""))
            except StorageError as error:
                say(f"{type(error).__name__} {error}".replace("\n", " "))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


asyncio.run(main(sys.argv[1]))
