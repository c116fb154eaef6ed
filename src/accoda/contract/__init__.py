"""Queue contracts: a YAML file describes the queues and the fields of their jobs; typed code is generated from it.

contract = load("contracts/queues.yaml")           # or ContractError with every mistake, each with line and column
files = generate(contract)                         # {"emails.py": "…", …}
"""

from accoda.contract.generator import generate
from accoda.contract.handling import HandlerContext, JobStorage
from accoda.contract.loader import load, parse
from accoda.contract.model import Contract, Field, FieldType, Queue
from accoda.contract.queue_settings import QueueSettings

__all__ = [
    "Contract",
    "Field",
    "FieldType",
    "HandlerContext",
    "JobStorage",
    "Queue",
    "QueueSettings",
    "generate",
    "load",
    "parse",
]
