"""One operation at work: check, read, handle, answer. Everything that can be made before the first request is."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from msgspec import json
from msgspec.structs import fields

from accoda.errors import JobNotFound
from accoda.http.call import Answer, Call, ClientGone, Headers, Raw
from accoda.http.operation import Nothing, Operation
from accoda.http.prefix import public_path
from accoda.http.problems import ProblemError, from_error, send_problem
from accoda.http.reading import BodyReader, TextReader, check_json, query_texts, read_body
from accoda.http.security.identity import check_scope
from accoda.model import ById

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.http.long_polls import LongPolls
    from accoda.http.options import ServiceOptions

Scope = MutableMapping[str, Any]

_JSON = (b"content-type", b"application/json")
_FRESH = (b"cache-control", b"no-store")
_NO_GUESS = (b"x-content-type-options", b"nosniff")


class Endpoint:
    """Answers the requests of one operation."""

    __slots__ = (
        "_app",
        "_body",
        "_handler",
        "_needed",
        "_no_query",
        "_options",
        "_path",
        "_polls",
        "_query",
        "_status",
        "operation",
    )

    def __init__(self, operation: Operation, app: App, options: ServiceOptions, polls: LongPolls) -> None:
        self.operation = operation
        self._handler, self._needed, self._status = operation.handler, operation.scope, operation.status
        self._app = app
        self._options = options
        self._polls = polls
        self._body = (
            None if operation.request is None else BodyReader(operation.request, optional=operation.body_optional)
        )
        self._path = None if operation.path_type is Nothing else TextReader(operation.path_type)
        self._query = TextReader(operation.query)
        self._no_query = self._query({}) if _all_optional(operation) else None

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        try:
            call = self._begin(scope, receive)
            if call.identity.queues is not None and self._needed is not None:
                await self._check_queues(call)
            body = scope.get("accoda.body")
            if body is not None:  # the guard has read it, and saw that it says it is JSON
                self._take_body(call, body)
            else:
                body = await read_body(scope, receive, self._options.max_body)
                if self._body is not None and (body or not self._body.optional):
                    check_json(scope)
                self._take_body(call, body)
            answer = await self._handler(call)
            start, body = self._render(answer)
        except ClientGone:
            return
        except Exception as error:
            await send_problem(send, from_error(error))
            return
        await send(start)
        await send({"type": "http.response.body", "body": body})

    def _begin(self, scope: Scope, receive: Any) -> Call[Any, Any, Any]:
        """All of the call but for its body."""
        needed = self._needed
        call: Call[Any, Any, Any] = Call(self._app, self._options, self._polls, scope, receive)
        if needed is not None and not call.identity.may(needed):
            check_scope(scope["accoda.identity"], needed)
        if self._path is not None:
            call.path = self._path(scope["path_params"])
        raw = scope["query_string"]
        call.query = self._no_query if not raw and self._no_query is not None else self._query(query_texts(raw))
        return call

    async def _check_queues(self, call: Call[Any, Any, Any]) -> None:
        """Refuse what is about queues that the caller is not for; what its handler looks at is left to that."""
        match self.operation.queues:
            case "all":
                call.check_queue(None)
            case "path":
                call.check_queue(call.path.name)
            case "job":
                # A job never changes its queue, and no id is given twice: what holds here holds for the handler.
                job = (await call.app.storage.look(ById(call.path.id))).job
                if job is None:
                    raise JobNotFound(call.path.id)
                call.check_queue(job.queue)

    def _take_body(self, call: Call[Any, Any, Any], body: bytes) -> None:
        if self._body is not None:
            call.raw = body
            call.body = self._body(body)
        elif body:
            raise ProblemError("invalid", "body: this operation reads no body; send none", field="body")

    def _render(self, answer: Any) -> tuple[dict[str, Any], bytes]:
        """The first message of the answer, and its body."""
        status, kind = self._status, _JSON
        more: Headers = ()
        if type(answer) is Raw:
            status, more, body = answer.status, answer.headers, answer.body
            kind = (b"content-type", answer.content_type.encode("latin-1"))
            headers = [kind, (b"content-length", b"%d" % len(body)), _NO_GUESS]
        else:
            if type(answer) is Answer:
                status, more, answer = answer.status or status, answer.headers, answer.value
            if status == 204:
                body, headers = b"", [_FRESH]
            else:
                body = _encode(answer)
                headers = [kind, (b"content-length", b"%d" % len(body)), _FRESH, _NO_GUESS]
        for name, value in more:
            if name == "location":
                value = public_path(value)
            headers.append((name.encode("latin-1"), value.encode("latin-1")))
        return {"type": "http.response.start", "status": status, "headers": headers}, body


def _all_optional(operation: Operation) -> bool:
    return not any(field.required for field in fields(operation.query))


_encode = json.Encoder().encode
