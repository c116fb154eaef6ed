"""The generated `handlers.py`: a protocol for each queue's handler, and the dispatcher."""

from __future__ import annotations

from accoda.contract.generator.code import WIDTH, call, docstring, imports, literal, module, nested, signature
from accoda.contract.model import Contract, Queue
from accoda.retry import Exponential

_RETURNS = "HandlerStats | None"


def handlers(contract: Contract, source: str) -> str:
    head = [
        "from typing import Protocol",
        "",
        *imports("accoda", ["App", "Batch", "HandlerStats", *_kinds(contract)]),
        "from accoda.contract.handling import HandlerContext, JobStorage",
        "from accoda.contract.handling import opened as _opened",  # no queue's name begins with _
        "from accoda.contract.wire import Struct",
        "",
    ]
    head += imports(".records", [f"{queue.class_name}Job" for queue in contract.queues])
    record = ["class Handlers(Struct, frozen=True):", '    """One handler for each queue."""', ""]
    record += [f"    {queue.name}: {queue.class_name}Handler" for queue in contract.queues]
    protocols = [_protocol(queue) for queue in contract.queues]
    return module("What handles the jobs of each queue.", source, head, *protocols, record, _dispatcher(contract))


def _kinds(contract: Contract) -> list[str]:
    """The classes of options."""
    settings = [queue.settings for queue in contract.queues]
    grows = any(isinstance(each.retry, Exponential) for each in settings)
    lanes = any(each.lanes is not None for each in settings)
    return [*(["Exponential"] if grows else []), *(["Lanes"] if lanes else [])]


def _protocol(queue: Queue) -> list[str]:
    job = f"{queue.class_name}Job"
    parameters = ["self", "ctx: HandlerContext", f"storage: JobStorage[{job}]", f"jobs: list[{job}]"]
    return [
        f"class {queue.class_name}Handler(Protocol):",
        *docstring(f"Handles the jobs of the queue {queue.name}.", 4),
        "",
        *signature(f"async def handle_{queue.name}", parameters, _RETURNS, indent=4),
        '        """Say `storage.done`, `.retry` or `.bury` of each job; the rest come back when their lease ends.',
        "",
        "        What is returned are the numbers of this call; None: they are counted.",
        '        """',
        "        ...",
    ]


def _dispatcher(contract: Contract) -> list[str]:
    lines = [
        "def dispatcher(handlers: Handlers, app: App | None = None) -> App:",
        '    """Give each queue its handler, in `app` or in a new one, for `accoda worker module:app`."""',
        "    app = App() if app is None else app",
    ]
    for queue in contract.queues:
        options = [_option(name, value) for name, value in queue.settings.written().items()]
        if queue.type_name is not None:
            options.insert(0, f"type={literal(queue.type_name)}")
        if contract.sharing(queue.queue_name)[0] is queue:  # a queue has one number: that of its first kind of job
            options.insert(0, f"number={queue.id}")
        options.append('settle="explicit"')
        lines += ["", *call("@app.handler", [literal(queue.queue_name), *options], indent=4)]
        batch = f"batch: Batch[{queue.class_name}Job]"
        lines += call(f"async def {queue.name}", [batch], f" -> {_RETURNS}:", indent=4)
        lines += [f"        handle = handlers.{queue.name}.handle_{queue.name}"]
        lines += ["        return await handle(*_opened(batch))"]
    return [*lines, "", "    return app"]


def _option(name: str, value: object) -> str:
    """A handler's option as code."""
    if not isinstance(value, dict):
        return f"{name}={literal(value)}"
    kind = "Lanes" if name == "lanes" else "Exponential"
    # The arguments of `@app.handler` are 8 columns in, those of a call among them 12.
    text = f"{name}={kind}({', '.join(f'{key}={literal(each)}' for key, each in value.items())})"
    if len(text) + 9 <= WIDTH:
        return text
    return "\n".join(
        call(f"{name}={kind}", [nested(f"{key}=", each, 12) for key, each in value.items()], indent=8)
    ).lstrip()
