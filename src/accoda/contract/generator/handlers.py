"""The generated `handlers.py`: a protocol for each queue's handler, and the dispatcher."""

from __future__ import annotations

from accoda.contract.generator.code import call, docstring, imports, literal, module, signature
from accoda.contract.model import Contract, Queue

_OPTIONS = {"batch_size": "batch", "visibility_timeout": "lease"}


def handlers(contract: Contract, source: str) -> str:
    head = [
        "from typing import Protocol",
        "",
        "from accoda import App, Batch",
        "from accoda.contract.wire import Struct",
        "",
    ]
    head += imports(".records", [f"{queue.class_name}Job" for queue in contract.queues])
    record = ["class Handlers(Struct, frozen=True):", '    """One handler for each queue."""', ""]
    record += [f"    {queue.name}: {queue.class_name}Handler" for queue in contract.queues]
    protocols = [_protocol(queue) for queue in contract.queues]
    return module("What handles the jobs of each queue.", source, head, *protocols, record, _dispatcher(contract))


def _protocol(queue: Queue) -> list[str]:
    parameters = ["self", f"batch: Batch[{queue.class_name}Job]"]
    return [
        f"class {queue.class_name}Handler(Protocol):",
        *docstring(f"Handles the jobs of the queue {queue.name}.", 4),
        "",
        *signature(f"async def handle_{queue.name}", parameters, "None", indent=4),
        '        """Say `batch.done`, `.retry` or `.bury` of each job; the rest come back when their lease ends."""',
        "        ...",
    ]


def _dispatcher(contract: Contract) -> list[str]:
    lines = [
        "def dispatcher(handlers: Handlers, app: App | None = None) -> App:",
        '    """Give each queue its handler, in `app` or in a new one, for `accoda worker module:app`."""',
        "    app = App() if app is None else app",
    ]
    for queue in contract.queues:
        settings = queue.settings.given().items()
        options = [f"{_OPTIONS.get(name, name)}={literal(value)}" for name, value in settings]
        if queue.type_name is not None:
            options.insert(0, f"type={literal(queue.type_name)}")
        if contract.sharing(queue.queue_name)[0] is queue:  # a queue has one number: that of its first kind of job
            options.insert(0, f"number={queue.id}")
        options.append('settle="explicit"')
        lines += ["", *call("@app.handler", [literal(queue.queue_name), *options], indent=4)]
        batch = f"batch: Batch[{queue.class_name}Job]"
        lines += signature(f"async def {queue.name}", [batch], "None", indent=4)
        lines += [f"        await handlers.{queue.name}.handle_{queue.name}(batch)"]
    return [*lines, "", "    return app"]
