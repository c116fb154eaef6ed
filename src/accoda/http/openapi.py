"""The OpenAPI 3.1 document, made from the table of operations: what is checked and what is written cannot differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from accoda.http.operation import JSON, Header, Link, Operation, Reply
from accoda.http.problems import KINDS, PROBLEM_JSON, Problem
from accoda.http.schemas import Schemas

SCOPES = {
    "read": "look at jobs, flows, queues, dead letters, schedules, workers, budgets",
    "enqueue": "create jobs and flows, and ask for their results",
    "work": "take, settle and extend jobs",
    "admin": "change and delete what is there: cancel, retry, pause, purge, replay, schedules",
}
QUEUES = {
    "path": "must have this one",
    "job": "must have the job's queue",
    "own": "sees and changes only what is of its own",
    "all": "is refused: this is about the whole store",
}
"""What becomes of a token that is limited to queues, by `Operation.queues`."""
ABOUT = """An API over the jobs of one store.

Names are in camelCase. Moments are RFC 3339 with an offset (`2030-01-01T09:00:00Z`), lengths of time are seconds, ids
are numbers. What is wrong is told as a problem document (RFC 9457) that names the field. Unknown fields and parameters
are refused. Pages are read on with the `next` of the last one as `cursor`."""
LICENSE = {"name": "MIT", "identifier": "MIT"}
GROUPS = {
    "Jobs": "Create jobs, look at them, and change one.",
    "Bulk": "One action on all jobs that match a filter.",
    "Dead letters": "Jobs that failed for good, and their way back.",
    "Queues": "What is in a queue; pause, resume and empty it.",
    "Flows": "Jobs that depend on each other: start them, see how they are doing, cancel and retry them.",
    "Schedules": "Jobs that come by cron or at intervals.",
    "Webhooks": "Calls when jobs have ended: their log, and the secret that signs them.",
    "Work": "Take jobs and settle them, in any language.",
    "Demands": "Results that many want: join, leave, and who waits.",
    "Looks": "The store as a whole: numbers, workers, budgets.",
    "Service": "The service itself: health, metrics, documents.",
}


def document(
    table: Sequence[Operation], *, secured: bool, needs_token: bool = True, demands: Sequence[str] = (), root: str = ""
) -> dict[str, Any]:
    """The whole document. `secured`: a guard stands before the service. `needs_token`: it lets no one in without one,
    so every operation asks for it; on loopback it needs none until there is one.

    `demands` are the queues of this service's app whose jobs are made by requests, and not by hand. `root` is the path
    under which the service is mounted.
    """
    table = [operation for operation in table if not operation.hidden]
    schemas = Schemas(table)
    if demands:
        schemas.leave_out(demands)
    paths: dict[str, dict[str, Any]] = {}
    for operation in table:
        made = _operation(operation, schemas, secured)
        made["security"] = _security(operation, needs_token) if secured else []
        paths.setdefault(operation.path, {})[operation.method.lower()] = made
    return {
        "openapi": "3.1.0",
        "info": {"title": "Accoda", "version": version("accoda"), "description": ABOUT, "license": LICENSE},
        "servers": [{"url": root or "/", "description": "this service"}],
        "tags": [
            {"name": group, "description": GROUPS[group]}
            for group in dict.fromkeys(operation.group for operation in table)
        ],
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": {"bearer": _bearer()}},
        "x-scopes": SCOPES,
        "x-queues": QUEUES,
        "x-problems": {
            name: {"status": kind.status, "title": kind.title, "description": kind.description}
            for name, kind in KINDS.items()
        },
    }


def _operation(operation: Operation, schemas: Schemas, secured: bool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.group],
        "summary": operation.summary,
        "description": _description(operation),
        "parameters": [*_parameters(operation, schemas), *(_header(each) for each in operation.headers)],
        "responses": {
            **{str(status): _reply(reply, schemas) for status, reply in operation.replies.items()},
            **_problems(operation, schemas, secured),
        },
    }
    if operation.request is not None:
        content: dict[str, Any] = {"schema": schemas.of(operation.request)}
        if operation.example is not None:
            content["example"] = msgspec.to_builtins(operation.example)
        made["requestBody"] = {"required": not operation.body_optional, "content": {JSON: content}}
    if operation.scope is not None:
        made["x-scope"] = operation.scope
        made["x-queues"] = operation.queues
    return made


def _security(operation: Operation, needs_token: bool) -> list[dict[str, list[str]]]:
    """A token of the scope; without `needs_token` one that may be left out."""
    if operation.scope is None:
        return []
    bearer = [{"bearer": [str(operation.scope)]}]
    return bearer if needs_token else [*bearer, {}]


def _description(operation: Operation) -> str:
    needed = "Open to every caller, without a token."
    if operation.scope is not None:
        needed = f"Scope: `{operation.scope}`. A token that is limited to queues {QUEUES[operation.queues]}."
    return f"{operation.description}\n\n{needed}".strip()


def _parameters(operation: Operation, schemas: Schemas) -> Iterable[dict[str, Any]]:
    for place, kind, examples in (
        ("path", operation.path_type, operation.path_example),
        ("query", operation.query, operation.query_example),
    ):
        known = schemas.parameters(kind)
        for name, schema in known["properties"].items():
            schema = dict(schema)
            made = {"name": name, "in": place, "required": place == "path" or name in known["required"]}
            if "description" in schema:
                made["description"] = schema.pop("description")
            if name in examples:
                made["example"] = examples[name]
            yield made | {"schema": schema}


def _header(header: Header) -> dict[str, Any]:
    made = {"name": header.name, "in": "header", "required": False, "description": header.description}
    return made | {"schema": header.schema} | ({} if header.example is None else {"example": header.example})


def _reply(reply: Reply, schemas: Schemas) -> dict[str, Any]:
    made: dict[str, Any] = {"description": reply.description}
    if reply.type is not None or reply.content_type != JSON:
        content: dict[str, Any] = {"schema": schemas.of(reply.type) if reply.type is not None else {"type": "string"}}
        if reply.example is not None:
            content["example"] = msgspec.to_builtins(reply.example)
        made["content"] = {reply.content_type: content}
    if reply.headers:
        made["headers"] = {
            each.name: {"description": each.description, "schema": each.schema} for each in reply.headers
        }
    if reply.links:
        made["links"] = {link.operation: _link(link) for link in reply.links}
    return made


def _link(link: Link) -> dict[str, Any]:
    return {"operationId": link.operation, "parameters": link.parameters}


def _problems(operation: Operation, schemas: Schemas, secured: bool) -> dict[str, Any]:
    """A response for each status; kinds that share one are its examples."""
    by_status: dict[int, list[str]] = {}
    for kind in _kinds(operation, secured):
        if kind not in by_status.setdefault(KINDS[kind].status, []):
            by_status[KINDS[kind].status].append(kind)
    return {
        str(status): _problem(status, kinds, schemas)
        for status, kinds in sorted(by_status.items())
        if status not in operation.replies
    }


def _kinds(operation: Operation, secured: bool) -> list[str]:
    kinds = ["malformed", "too-large", "invalid", *operation.errors]
    if operation.request is not None:
        kinds.append("unsupported-media-type")
    if operation.scope is not None:
        kinds += ["internal", "storage"]
        kinds += ["unauthorized", "forbidden"] if secured else []
    return kinds + (["wrong-host", "too-many"] if secured else [])


def _problem(status: int, kinds: Sequence[str], schemas: Schemas) -> dict[str, Any]:
    made: dict[str, Any] = {
        "description": " ".join(f"{KINDS[kind].title}: {KINDS[kind].description}" for kind in kinds),
        "content": {
            PROBLEM_JSON: {
                "schema": schemas.of(Problem),
                "examples": {kind: {"value": _problem_example(kind)} for kind in kinds},
            }
        },
    }
    if status in (429, 503):
        made["headers"] = {"Retry-After": {"description": "seconds to wait", "schema": {"type": "integer"}}}
    if status == 401:
        made["headers"] = {"WWW-Authenticate": {"description": "what is asked for", "schema": {"type": "string"}}}
    return made


def _problem_example(kind: str) -> dict[str, Any]:
    known = KINDS[kind]
    return {"type": f"/docs#{kind}", "title": known.title, "status": known.status, "detail": known.description}


def _bearer() -> dict[str, Any]:
    words = "; ".join(f"`{name}`: {what}" for name, what in SCOPES.items())
    return {
        "type": "http",
        "scheme": "bearer",
        "description": f"A token with scopes, for all queues or for some. {words}.",
    }
