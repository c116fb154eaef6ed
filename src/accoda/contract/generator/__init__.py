"""Generates a package of typed Python from a contract. The same contract gives the same bytes.

Only names, which were checked to be identifiers, and literals of a contract become code.
"""

from __future__ import annotations

import ast

from accoda.contract.generator.code import imports, literal, module, ordered
from accoda.contract.generator.handlers import handlers
from accoda.contract.generator.producers import producers
from accoda.contract.generator.records import alias_names, records
from accoda.contract.model import Contract
from accoda.errors import ContractError

__all__ = ["generate"]


def generate(contract: Contract, source: str = "a contract", *, aliases: bool = False) -> dict[str, str]:
    """The files of the package, by name. `aliases`: also with the names that a task has in other runtimes."""
    files = {
        "__init__.py": _package(contract, source, aliases),
        "handlers.py": handlers(contract, source),
        "producers.py": producers(contract, source),
        "records.py": records(contract, source, aliases=aliases),
    }
    for text in files.values():
        ast.parse(text)  # our own bugs must not reach the disk
    return files


def _package(contract: Contract, source: str, aliases: bool) -> str:
    queues = contract.queues
    parts = {
        ".handlers": ["Handlers", "dispatcher", *(f"{queue.class_name}Handler" for queue in queues)],
        ".producers": ["Queues", *(f"{queue.class_name}Queue" for queue in queues)],
        ".records": [
            *(f"{queue.class_name}Job" for queue in queues),
            *(f"{verb}_{queue.name}" for queue in queues for verb in ("serialize", "deserialize")),
            *(name for queue in queues if aliases for name in alias_names(queue)),
        ],
    }
    names = ordered([name for part in parts.values() for name in part])
    if len(set(names)) < len(names):  # only aliases can do that: a queue x and a queue serialize_x
        twice = next(name for name in names if names.count(name) > 1)
        raise ContractError([f"two queues would have the alias {twice}; rename one, or generate without aliases"])
    lines = [line for place, part in parts.items() for line in imports(place, part)]
    lines += ["", "__all__ = [", *(f"    {literal(name)}," for name in names), "]"]
    about = contract.description or "The queues of this service: records, handlers and producers."
    return module(_one_line(about), source, lines)


def _one_line(text: str) -> str:
    words = "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))
    words = words.replace("\\", "/").replace('"', "'")
    return words if len(words) <= 110 else words[:109] + "…"
