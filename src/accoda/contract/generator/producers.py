"""The generated `producers.py`: a typed `enqueue` for each queue."""

from __future__ import annotations

from accoda.contract.generator.code import call, docstring, imports, literal, module
from accoda.contract.model import Contract, Field, Queue


def producers(contract: Contract, source: str) -> str:
    fields = [field for queue in contract.queues for field in queue.fields]
    head = [*imports("accoda", ["App", "Enqueued", "EnqueueOptions"]), "from accoda.contract.producer import Producer"]
    if any("Int64" in field.type.python for field in fields):
        head += ["from accoda.contract.wire import Int64"]
    names = [name for queue in contract.queues for name in (f"{queue.class_name}Job", f"codec_of_{queue.name}")]
    head += ["", *imports(".records", names)]
    every = ["class Queues:", f'    """All queues: `await queues.{contract.queues[0].name}.enqueue(…)`."""', ""]
    every += ["    def __init__(self, app: App) -> None:"]
    every += [f"        self.{queue.name} = {queue.class_name}Queue(app)" for queue in contract.queues]
    defaults = _Defaults()
    blocks = [_producer(contract, queue, defaults) for queue in contract.queues]
    if defaults.lines:
        head += ["", *defaults.lines]
    return module("Typed ways to enqueue to each queue.", source, head, *blocks, every)


class _Defaults:
    """The lists that are default arguments. They are never changed, so all calls may share them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def of(self, field: Field) -> str:
        if not field.has_default:
            return ""
        if not isinstance(field.given_default, list):
            return f" = {literal(field.given_default)}"
        name = f"_DEFAULT_{len(self.lines) + 1}"
        self.lines.append(f"{name}: {field.type.python} = {literal(field.given_default)}")
        return f" = {name}"


def _producer(contract: Contract, queue: Queue, defaults: _Defaults) -> list[str]:
    name = queue.class_name
    settings = queue.settings.given()
    policies = [one.settings.policy for one in contract.sharing(queue.queue_name) if one.settings.policy is not None]
    extra = [] if queue.type_name is None else [f"type={literal(queue.type_name)}"]
    extra += [f"policy={literal(policies[0])}"] if policies else []
    extra += [f"{name}={literal(settings[name])}" for name in ("cost", "keep_for") if name in settings]
    record = [f"{field.name}={field.name}" for field in queue.fields]
    return [
        f"class {name}Queue(Producer[{name}Job]):",
        *docstring(f"Enqueues to {queue.name}.", 4),
        "",
        "    def __init__(self, app: App) -> None:",
        *call("super().__init__", ["app", literal(queue.queue_name), f"codec_of_{queue.name}", *extra], indent=8),
        "",
        "    async def enqueue(",
        "        self,",
        "        _options: EnqueueOptions | None = None,",
        "        /,",
        "        *,",
        *(f"        {field.name}: {field.python}{defaults.of(field)}," for field in queue.fields),
        "    ) -> Enqueued:",
        '        """Enqueue one job; the first argument may say `priority`, `delay`, `key` and the like."""',
        "        return await self.enqueue_record(",
        *call(f"{name}Job", record, ",", indent=12, split=True),
        "            _options,",
        "        )",
    ]
