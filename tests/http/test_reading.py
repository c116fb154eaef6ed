"""From the wire to structs: what does not fit is named as it was sent, with what is allowed."""

from typing import Annotated, Any, Literal

import pytest
from msgspec import UNSET, Meta, Struct, UnsetType

from accoda.errors import (
    Conflict,
    InFlight,
    InvalidInput,
    JobFailed,
    JobNotFound,
    KeyReused,
    MissingDriver,
    NotFound,
    TooLarge,
)
from accoda.http.problems import KINDS, Problem, ProblemError, from_error
from accoda.http.reading import BodyReader, TextReader, query_texts


class Part(Struct, rename="camel", forbid_unknown_fields=True):
    level: Literal["low", "high"] = "low"
    max_size: Annotated[int, Meta(ge=0, le=10)] | None = None
    share: Annotated[float, Meta(gt=0)] = 1.0


class Whole(Struct, rename="camel", forbid_unknown_fields=True):
    parts: Annotated[list[Part], Meta(min_length=1)]
    free: Any = None


class Query(Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    wait: Annotated[float, Meta(ge=0)] = 0.0
    all: bool = False
    name: str | UnsetType = UNSET


def refused(body: bytes) -> Problem:
    with pytest.raises(ProblemError) as caught:
        BodyReader(Whole, optional=False)(body)
    return caught.value.problem


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        (b"{}", "parts", "is missing"),
        (b'{"parts": []}', "parts", "length >= 1"),
        (b'{"parts": [{}, {"level": "mid"}]}', "parts[1].level", "must be one of high, low, not 'mid'"),
        (b'{"parts": [{"maxSize": 11}]}', "parts[0].maxSize", "must be an integer from 0 to 10"),
        (b'{"parts": [{"maxSize": "5"}]}', "parts[0].maxSize", "not str"),
        (b'{"parts": [{"maxSize": 2.5}]}', "parts[0].maxSize", "must be an integer from 0 to 10"),
        (b'{"parts": [{"share": 0}]}', "parts[0].share", "must be a number > 0"),
        (b'{"parts": [{"maxsize": 1}]}', "parts[0].maxsize", "did you mean maxSize?"),
        (b'{"parts": [{"max_size": 1}]}', "parts[0].max_size", "did you mean maxSize?"),
        (b'{"parts": [{"zzz": 1}]}', "parts[0].zzz", "there is level, maxSize, share"),
        (b'{"partz": []}', "partz", "did you mean parts?"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_what_is_allowed(body: bytes, field: str, words: str) -> None:
    problem = refused(body)
    assert (problem.status, problem.field) == (422, field)
    assert words in problem.detail


def test_integers_may_be_written_with_a_point_and_other_values_stay_as_they_are() -> None:
    found = BodyReader(Whole, optional=False)(b'{"parts": [{"maxSize": 1.0}, {"maxSize": 2e0}], "free": 3.0}')
    assert [part.max_size for part in found.parts] == [1, 2]
    assert type(found.free) is float


def test_a_flood_of_integers_with_points_is_refused_before_it_costs_much() -> None:
    body = b'{"parts": [' + b",".join([b'{"maxSize": 1.0}'] * 500) + b"]}"
    assert "without" in refused(body).detail


def test_an_empty_body_stands_for_no_wishes_where_that_is_allowed() -> None:
    assert BodyReader(Part, optional=True)(b"").level == "low"


@pytest.mark.parametrize(
    ("texts", "field"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"limit": ""}, "limit"),
        ({"limit": "1.5"}, "limit"),
        ({"wait": "nan"}, "wait"),
        ({"wait": "inf"}, "wait"),
        ({"wait": "-1"}, "wait"),
        ({"wait": "soon"}, "wait"),
        ({"all": "1"}, "all"),
        ({"all": ""}, "all"),
        ({"lim": "1"}, "lim"),
    ],
)
def test_texts_of_a_query_that_do_not_fit_are_named(texts: dict[str, str], field: str) -> None:
    with pytest.raises(ProblemError) as caught:
        TextReader(Query)(texts)
    assert (caught.value.problem.status, caught.value.problem.field) == (422, field)


def test_texts_of_a_query_become_numbers_flags_and_texts() -> None:
    found = TextReader(Query)({"limit": "7", "wait": "0.5", "all": "true", "name": "null"})
    assert (found.limit, found.wait, found.all, found.name) == (7, 0.5, True, "null")
    assert TextReader(Query)({}).name is UNSET


def test_a_query_is_read_as_text() -> None:
    assert query_texts(b"a=1&b=%C3%A9+x&c=") == {"a": "1", "b": "é x", "c": ""}
    with pytest.raises(ProblemError, match="twice"):
        query_texts(b"a=1&b=2&a=3")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InvalidInput("key", "no"), "invalid"),
        (TooLarge("payload", 2, 1), "too-large"),
        (JobNotFound(7), "not-found"),
        (NotFound("queue", "x"), "not-found"),
        (JobFailed(7, "broken"), "dead"),
        (Conflict("it runs"), "conflict"),
        (InFlight("k"), "in-flight"),
        (KeyReused("k"), "key-reused"),
        (MissingDriver("pip install it"), "not-installed"),
    ],
)
def test_errors_become_problems_of_their_kind(error: Exception, kind: str) -> None:
    problem = from_error(error).problem
    assert (problem.type, problem.status, problem.title) == (f"/docs#{kind}", KINDS[kind].status, KINDS[kind].title)


def test_what_json_cannot_carry_is_replaced_in_a_problem() -> None:
    assert from_error(InvalidInput("key", "not '\ud800'")).problem.detail == "key: not '?'"
