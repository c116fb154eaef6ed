"""Where a page ended, as text that a client hands back: opaque, small, and checked when it comes back."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64

import msgspec

from accoda.errors import InvalidInput
from accoda.limits import is_name
from accoda.replays.places import Place

_LONGEST = 400


def encode(place: Place) -> str:
    """A place as a cursor.

    >>> decode(encode(Place("emails", "dead", 7)))
    Place(queue='emails', state='dead', id=7)
    """
    return urlsafe_b64encode(_encoder.encode(place)).decode().rstrip("=")


def decode(cursor: str) -> Place:
    """The place that a cursor names."""
    try:
        if len(cursor) > _LONGEST or not cursor.isascii():
            raise ValueError
        place = _decoder.decode(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, NotBase64):  # msgspec's are ValueErrors
        place = None
    if place is None or not is_name(place.queue) or not 0 <= place.id < 1 << 63 or encode(place) != cursor:
        raise InvalidInput("cursor", "is damaged; use the `next` of a page as it is, or leave it out to begin anew")
    return place


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Place)
