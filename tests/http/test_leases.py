"""Tokens, and what the failure of a worker elsewhere means. No service, no store."""

import string
from typing import Any

import pytest

from accoda.envelope import NOTHING, Hook, JobMetadata
from accoda.errors import InvalidInput
from accoda.http.leases import LONGEST_TOKEN, Ticket, failed, read_token, token_of
from accoda.model import Bury, Job, Lease, Retry
from accoda.retry import Fixed, Limits

SIGNS = string.ascii_letters + string.digits + "-_"


def job(queue: str = "emails", id: int = 7, attempts: int = 3, tries: int = 2) -> Job:
    return Job(id, queue, b"", 0.0, 0, None, attempts, 0, 0, None, 0, Lease(queue, id, attempts, 99), tries)


@pytest.mark.parametrize(
    ("extras", "ticket"),
    [
        (NOTHING, Ticket("emails", 7, 3, 99, 2)),
        (JobMetadata(max_attempts=5), Ticket("emails", 7, 3, 99, 2, 5)),
        (JobMetadata(hook=Hook("https://example.com")), Ticket("emails", 7, 3, 99, 2, None, True)),
        (JobMetadata(secret=("card",)), Ticket("emails", 7, 3, 99, 2, None, True)),
    ],
)
def test_a_token_says_all_that_is_needed_to_end_a_job(extras: JobMetadata, ticket: Ticket) -> None:
    assert read_token(token_of(job(), extras), "lease") == ticket
    assert ticket.lease == Lease("emails", 7, 3, 99)


def test_the_longest_token_is_read_and_needs_no_escaping() -> None:
    most = (1 << 63) - 1
    token = token_of(job("q" * 128, most, most, most), JobMetadata(max_attempts=most))
    assert len(token) <= LONGEST_TOKEN
    assert set(token) <= set(SIGNS)
    assert read_token(token, "lease").id == most


def test_a_token_with_one_wrong_sign_is_refused_wherever_it_is() -> None:
    token = token_of(job(), NOTHING)
    for place, sign in enumerate(token):
        for other in SIGNS.replace(sign, ""):
            with pytest.raises(InvalidInput):
                read_token(token[:place] + other + token[place + 1 :], "lease")


@pytest.mark.parametrize(
    "change", [str.upper, lambda t: t + "A", lambda t: t[1:], lambda t: t + "=", lambda t: " " + t]
)
def test_a_damaged_token_is_refused_with_its_place(change: Any) -> None:
    with pytest.raises(InvalidInput, match=r"outcomes\[3\]\.lease: is no lease that take gave") as caught:
        read_token(change(token_of(job(), NOTHING)), "outcomes[3].lease")
    assert caught.value.field == "outcomes[3].lease"


@pytest.mark.parametrize("text", ["", "=", "é", "\ud800", "A" * 100_000, "AAAA", "AAAAAA"])
def test_what_is_no_token_at_all_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_token(text, "lease")


def test_a_failure_goes_back_by_the_rule_with_the_workers_own_words() -> None:
    ticket = Ticket("emails", 7, 3, 99, 2)
    assert failed(ticket, "TypeError: x", Limits(Fixed(9.0))) == Retry(ticket.lease, 9.0, reason="TypeError: x")


def test_a_failure_is_buried_at_the_limit_of_the_job_before_that_of_the_queue() -> None:
    limits = Limits(Fixed(9.0), max_attempts=100)
    said = "failed 2 times, the last time with TypeError: x"
    ticket = Ticket("emails", 7, 3, 99, tries=1, max_attempts=2)  # it failed once since it was revived
    assert failed(ticket, "TypeError: x", limits) == Bury(ticket.lease, said)
    assert isinstance(failed(Ticket("emails", 7, 2, 99, tries=0, max_attempts=2), "TypeError: x", limits), Retry)


def test_a_failure_without_words_and_one_with_too_many_are_kept_as_text() -> None:
    ticket = Ticket("emails", 7, 0, 99)
    quiet, loud = failed(ticket, "", Limits(Fixed(0))), failed(ticket, "x\0" * 50_000, Limits(Fixed(0)))
    assert isinstance(quiet, Retry) and quiet.reason == "failed without a word"
    assert isinstance(loud, Retry) and "\0" not in loud.reason and len(loud.reason) <= 16_384
