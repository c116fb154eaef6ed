"""The headers, cookies and form of a request; and whether a form comes from a page of ours."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from accoda.http.problems import ProblemError
from accoda.http.reading import query_texts, read_body
from accoda.http.security.origins import is_own_page
from accoda.http.security.pages import FORM, LARGEST
from accoda.http.security.refusals import foreign_form

Scope = MutableMapping[str, Any]

FIELDS = 200


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """The headers by name; the guard has refused duplicates of those that we use."""
    return dict(scope["headers"])


def cookies_of(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """The cookies; of two with one name, the first.

    >>> cookies_of({b"cookie": b"accoda=acc_1_x; other=2"})
    {'accoda': 'acc_1_x', 'other': '2'}
    """
    found: dict[str, str] = {}
    for part in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, equals, value = part.strip().partition("=")
        if equals:
            found.setdefault(name, value)
    return found


async def read_form(scope: Scope, receive: Any) -> dict[str, str]:
    """The fields of a form. Refuses one that comes from elsewhere before it reads any of it."""
    headers = headers_of(scope)
    check_own(headers)
    if headers.get(b"content-type", FORM).partition(b";")[0].strip().lower() != FORM:
        raise ProblemError("unsupported-media-type", "the dashboard reads forms; programs use /api/v1")
    body = scope.get("accoda.body")
    if body is None:
        body = await read_body(scope, receive, LARGEST)
    return fields_of(body)


def check_own(headers: Mapping[bytes, bytes]) -> None:
    """Refuse what does not come from a page of this service: a browser always says where a form comes from."""
    if not is_own_page(headers):
        raise foreign_form()


def fields_of(body: bytes) -> dict[str, str]:
    """The fields in a body; refuses duplicates, and what is not text.

    >>> fields_of(b"queue=emails&note=two+words")
    {'queue': 'emails', 'note': 'two words'}
    """
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS)
    except UnicodeDecodeError as error:
        raise ProblemError("malformed", "the form is not UTF-8 with percent signs") from error
    except ValueError as error:
        raise ProblemError("malformed", f"the form has more than {FIELDS} fields") from error
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ProblemError("invalid", "a field of the form is given twice; give it once")
    return fields


def query_of(raw: bytes) -> dict[str, str]:
    """The parameters of an address, without empty ones: a filter form sends all of its fields."""
    return {name: value for name, value in query_texts(raw).items() if value != ""}
