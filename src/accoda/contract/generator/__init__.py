"""Generates a package of typed Python from a contract. The same contract gives the same bytes.

Only names, which were checked to be identifiers, and literals of a contract become code.
"""

from __future__ import annotations

import ast

from accoda.contract.generator.code import imports, literal, module, ordered
from accoda.contract.generator.handlers import handlers
from accoda.contract.generator.producers import producers
from accoda.contract.generator.records import records
from accoda.contract.model import Contract

__all__ = ["generate"]


def generate(contract: Contract, source: str = "a contract") -> dict[str, str]:
    """The files of the package, by name."""
    files = {
        "__init__.py": _package(contract, source),
        "handlers.py": handlers(contract, source),
        "producers.py": producers(contract, source),
        "records.py": records(contract, source),
    }
    for text in files.values():
        ast.parse(text)  # our own bugs must not reach the disk
    return files


def _package(contract: Contract, source: str) -> str:
    queues = contract.queues
    parts = {
        ".handlers": ["Handlers", "dispatcher", *(f"{queue.class_name}Handler" for queue in queues)],
        ".producers": ["Queues", *(f"{queue.class_name}Queue" for queue in queues)],
        ".records": [
            *(f"{queue.class_name}Job" for queue in queues),
            *(f"{verb}_{queue.name}" for queue in queues for verb in ("serialize", "deserialize")),
        ],
    }
    names = ordered([name for part in parts.values() for name in part])
    lines = [line for place, part in parts.items() for line in imports(place, part)]
    lines += ["", "__all__ = [", *(f"    {literal(name)}," for name in names), "]"]
    about = contract.description or "The queues of this service: records, handlers and producers."
    return module(_one_line(about), source, lines)


def _one_line(text: str) -> str:
    words = "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))
    words = words.replace("\\", "/").replace('"', "'")
    return words if len(words) <= 110 else words[:109] + "…"
