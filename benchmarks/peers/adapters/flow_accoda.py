"""Accoda's flows: members by `flow.map`, and a node after all of them. Its worker runs by default, with ten slots."""

from __future__ import annotations

import uvloop
from joining import Notes, Order, main

from accoda import App, Worker, WorkerOptions
from accoda.settings import Settings

FIRST, MEMBERS, JOINS = "first", "members", "joins"


class Producer:
    def __init__(self, order: Order) -> None:
        self.order = order
        self.app = App(order.url)

    async def open(self) -> None:
        await self.app.storage.stats()

    async def start(self, flow: int, members: int) -> None:
        built = self.app.flow("fan", key=f"flow-{flow}")
        after = [built.add(FIRST)] if self.order.diamond else []
        parts = built.map(MEMBERS, ([flow, index] for index in range(members)), after=after)
        built.add(JOINS, flow, after=parts)
        await built.start()

    async def get(self, flow: int) -> None:
        await self.app.flows.get(f"flow-{flow}")

    async def close(self) -> None:
        await self.app.close()


def work(order: Order, notes: Notes) -> None:
    async def run() -> None:
        app = App(order.url)
        options = order.options.get("handler", {})

        @app.handler(FIRST, **options)
        async def first() -> None:
            pass

        @app.handler(MEMBERS, **options)
        async def members(place: tuple[int, int]) -> None:
            await notes.member_async(*place)

        @app.handler(JOINS, **options)
        async def joins(flow: int) -> None:
            notes.join(flow, app.current.id)

        worker = Worker(app, WorkerOptions(settings=Settings.load(environ={})))
        await worker.init()
        await worker.run()

    uvloop.run(run())


if __name__ == "__main__":
    main(Producer, work)
