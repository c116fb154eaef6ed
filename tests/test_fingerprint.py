"""Failures of one cause share a fingerprint, those of another do not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accoda.fingerprint import fingerprint, gist

SAME = [
    ("no user 7", "no user 812"),
    ("KeyError: 'anna'", "KeyError: 'ben'"),
    ("can't open 'a.txt'", "can't open 'b c.txt'"),
    ("timeout after 1.5 s at 10.0.0.1:80", "timeout after 30 s at 192.168.100.7:5432"),
    ("cannot reach [2001:db8::1]:443", "cannot reach [2001:db8::beef]:443"),
    ("GET https://api.example.com/a?x=1 failed", "GET https://api.example.com/b failed"),
    ("mail to anna@example.com bounced", "mail to ben.b+x@mail.example.org bounced"),
    ("job 5f0c9c1e-8d0a-4b7e-9c64-0d6a4c0f0001 lost", "job 00000000-8d0a-4b7e-9c64-0d6a4c0fffff lost"),
    ("<Thing object at 0x7f12ab>", "<Thing object at 0x55d0>"),
    ("order ord_9aF3kk20xQ81 is closed", "order ord_1bb3kk20xQ99zz is closed"),
    ("failed 3 times, the last time with ValueError: bad", "ValueError: bad"),
    ("failed: ValueError: bad", "ValueError: bad"),
    ("no such file: /srv/a/1.txt", "no such file: /srv/b/c/2.txt"),
    ("disk   full", "disk full"),
]
OTHER = [
    ("no user 7", "no order 7"),
    ("KeyError: 'a'", "ValueError: 'a'"),
    ("timeout", "Timeout of the lock"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_reasons_that_differ_in_numbers_names_and_addresses_are_one(one: str, other: str) -> None:
    assert fingerprint(one) == fingerprint(other), (gist(one), gist(other))


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_reasons_that_differ_in_words_are_two(one: str, other: str) -> None:
    assert fingerprint(one) != fingerprint(other)


@given(st.text())
def test_it_is_twelve_hex_digits_of_anything(reason: str) -> None:
    assert re.fullmatch("[0-9a-f]{12}", fingerprint(reason))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", ["'", '"', "a:", "1.", "a-", "://", "@", "/", "0x", "«", "a@", "1:1:", "a.a@", "' "])
def test_no_reason_takes_long(part: str) -> None:
    gist((part * 16_384)[:16_384])
