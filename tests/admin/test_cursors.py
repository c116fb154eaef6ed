"""Cursors come back as they went out, or are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accoda import InvalidInput
from accoda.admin.cursors import decode, encode
from accoda.model import STATES
from accoda.replays.places import Place

places = st.builds(
    Place,
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", fullmatch=True),
    st.sampled_from(STATES),
    st.integers(0, 2**63 - 1),
)


@given(places)
def test_a_cursor_leads_back_to_its_place(place: Place) -> None:
    assert decode(encode(place)) == place


@given(st.text(max_size=60))
def test_any_other_text_is_refused_or_a_place(text: str) -> None:
    try:
        assert encode(decode(text)) == text
    except InvalidInput as error:
        assert error.field == "cursor"


@pytest.mark.parametrize(
    "damaged", ["", "x", "====", encode(Place("a")) + "A", encode(Place("a"))[:-2], "é", "a" * 999]
)
def test_a_damaged_cursor_is_refused(damaged: str) -> None:
    with pytest.raises(InvalidInput, match="cursor: is damaged"):
        decode(damaged)
