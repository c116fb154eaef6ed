"""The generated `records.py`: a record for each queue, and its serializer and deserializer."""

from __future__ import annotations

from accoda.contract.generator.code import call, condition, docstring, imports, literal, module, signature, tuple_of
from accoda.contract.model import Contract, Field, Queue

# What a field must be to be encoded without further checks; other values are checked by decoding them. Numbers below
# -2^63 need no check: the encoder refuses them.
_CHECKS = {
    "int": ("type({0}) is int", "{0} <= 0x7FFFFFFFFFFFFFFF"),
    "int64": ("type({0}) is int", "{0} <= 0x7FFFFFFFFFFFFFFF"),
    "string": ("type({0}) is str",),
    "bool": ("type({0}) is bool",),
    "[]byte": ("type({0}) is bytes",),
    "float": ("type({0}) is float",),
}


# What a task is called in the Go code that such contracts were made for, beside its name here.
_ALIASES = {
    "TaskID": ("job_id", "int"),
    "Attempts": ("attempts", "int"),
    "PrevStartTime": ("prev_start_time", "int | None"),
}


def records(contract: Contract, source: str, *, aliases: bool = False) -> str:
    fields = [field for queue in contract.queues for field in queue.fields]
    used = ["RecordCodec", "Struct", "Wire"]
    if any("Int64" in field.type.python for field in fields):
        used.append("Int64")
    if any(isinstance(field.default, list) for field in fields):
        used.append("field")
    blocks = [block for queue in contract.queues for block in _blocks(queue, aliases)]
    return module("What the jobs of each queue carry.", source, imports("accoda.contract.wire", used), *blocks)


def alias_names(queue: Queue) -> dict[str, str]:
    """The names of a task of this queue, each with the name that it stands for."""
    task = f"{queue.class_name}Task"
    return {
        task: f"{queue.class_name}Job",
        f"Serialize{task}": f"serialize_{queue.name}",
        f"Deserialize{task}": f"deserialize_{queue.name}",
    }


def _blocks(queue: Queue, aliases: bool) -> list[list[str]]:
    name = queue.class_name
    wire = call(f"_{queue.name}_wire = Wire", [literal(queue.name), f"_{name}Shape"])
    # Module-level names: attribute lookups would cost a tenth of the whole time.
    wire += [f"_{queue.name}_{verb} = _{queue.name}_wire.{verb}" for verb in ("encode", "decode")]
    codec = call(
        f"codec_of_{queue.name} = RecordCodec", [f"{name}Job", f"serialize_{queue.name}", f"deserialize_{queue.name}"]
    )
    end = [*wire, *codec]
    if aliases:
        end += ["", *(f"{alias} = {stands_for}" for alias, stands_for in alias_names(queue).items())]
    return [_record(queue, aliases), _shape(queue), _serialize(queue), _deserialize(queue), end]


def _record(queue: Queue, aliases: bool) -> list[str]:
    lines = [f"class {queue.class_name}Job(Struct, kw_only=True{_gc(queue)}):"]
    lines += docstring(queue.description or f"A job of the queue {queue.name}.", 4)
    lines += ["", "    job_id: int = 0", "    attempts: int = 0", "    prev_start_time: int | None = None"]
    for field in queue.fields:
        lines += _declared(field)
        if field.description:
            lines += docstring(field.description, 4)
    if aliases:
        for alias, (name, kind) in _ALIASES.items():
            lines += ["", "    @property", f"    def {alias}(self) -> {kind}:", f"        return self.{name}"]
    return lines


def _shape(queue: Queue) -> list[str]:
    lines = [f"class _{queue.class_name}Shape(Struct, array_like=True{_gc(queue)}):"]
    return lines + [line for field in queue.fields for line in _declared(field)]


def _serialize(queue: Queue) -> list[str]:
    lines = signature(f"def serialize_{queue.name}", [f"job: {queue.class_name}Job"], "bytes")
    lines += docstring("The job's fields as a msgpack array, or a `ContractError` that names the one that is wrong.", 4)
    lines += tuple_of("values = ", [f"job.{field.name}" for field in queue.fields], 4)
    if all(field.type.word in _CHECKS and not field.optional for field in queue.fields):
        checks = [check.format(f"job.{field.name}") for field in queue.fields for check in _CHECKS[field.type.word]]
        lines += ["    try:", *condition(checks, 8), f"            return _{queue.name}_encode(values)"]
        lines += ["    except (ValueError, OverflowError) as error:"]
        lines += [f"        raise _{queue.name}_wire.unfit(error, values) from error"]
    return [*lines, f"    return _{queue.name}_wire.checked(values)"]


def _deserialize(queue: Queue) -> list[str]:
    name = queue.class_name
    parameters = ["data: bytes", "job_id: int = 0", "attempts: int = 0", "prev_start_time: int | None = None"]
    values = ["job_id=job_id", "attempts=attempts", "prev_start_time=prev_start_time"]
    values += [f"{field.name}=found.{field.name}" for field in queue.fields]
    return [
        *signature(f"def deserialize_{queue.name}", parameters, f"{name}Job"),
        *docstring("The job of a payload, or a `ContractError` that names the field that cannot be read.", 4),
        "    try:",
        f"        found = _{queue.name}_decode(data)",
        "    except Exception as error:",
        f"        raise _{queue.name}_wire.unreadable(error, data) from error",
        *call(f"return {name}Job", values, indent=4, split=True),
    ]


def _gc(queue: Queue) -> str:
    """Records that cannot be part of a reference cycle need no garbage collector."""
    flat = not any(field.type.word.startswith("[]") and field.type.word != "[]byte" for field in queue.fields)
    return ", gc=False" if flat else ""


def _declared(field: Field) -> list[str]:
    """A field of a struct."""
    head = f"{field.name}: {field.python}"
    if not field.has_default:
        return [f"    {head}"]
    value = field.given_default
    if isinstance(value, list):
        factory = f"lambda: {literal(value)}" if value else "list"
        return call(f"{head} = field", [f"default_factory={factory}"], indent=4)
    return [f"    {head} = {literal(value)}"]
