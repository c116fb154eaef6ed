"""The API's tokens: they come in steps, up to a capacity, and a call that costs more than there is takes none.

Pure: a value in, a value out, the moment passed in.
"""

from __future__ import annotations

from math import ceil

from msgspec import Struct
from msgspec.structs import replace


class Tokens(Struct, frozen=True):
    """`left` tokens since the step at `stepped_at` (milliseconds); every `per` milliseconds `rate` more come.

    `offered` counts all that came, those included that found no room: what a client could have spent.
    """

    capacity: int
    rate: int
    left: int
    stepped_at: int
    per: int = 60_000
    offered: int = 0

    def at(self, now: int) -> Tokens:
        """With every step that has come by now.

        >>> Tokens(capacity=50, rate=20, left=0, stepped_at=0).at(119_999).left
        20
        >>> Tokens(capacity=50, rate=20, left=0, stepped_at=0).at(180_000).left
        50
        """
        steps = max(0, now - self.stepped_at) // self.per
        if not steps:
            return self
        came = steps * self.rate
        return replace(
            self,
            left=min(self.capacity, self.left + came),
            stepped_at=self.stepped_at + steps * self.per,
            offered=self.offered + came,
        )

    def spend(self, cost: int) -> Tokens | None:
        """Without the tokens of a call; None: there are too few, and nothing is taken."""
        return None if cost > self.left else replace(self, left=self.left - cost)

    def refill_in(self, now: int) -> int:
        """Milliseconds to the next step."""
        return self.stepped_at + self.per - now

    def affordable_in(self, cost: int, now: int) -> int:
        """Milliseconds until a call of this cost could be paid, if no other call is made."""
        missing = cost - self.left
        return 0 if missing <= 0 else self.refill_in(now) + (ceil(missing / self.rate) - 1) * self.per
