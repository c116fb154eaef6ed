"""What the shop stands on. In a real one these would be a mail server, a warehouse and a bookkeeper on the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Say = Callable[[str, str], None]
"""Tells people what happened: where, and what."""


class Greylisted(Exception):
    """The mail server wants to be asked again later: what many do at the first try."""


class NoSuchAddress(Exception):
    """The mail server does not know the address."""


@dataclass
class MailServer:
    """Takes emails. Hosts in `greylists` refuse the first email to each address."""

    greylists: frozenset[str] = frozenset({"slow.example"})
    sent: list[tuple[str, str]] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)

    async def send(self, to: str, subject: str, body: bytes) -> None:
        name, at, host = to.partition("@")
        if not (name and at and host):
            raise NoSuchAddress(to)
        if host in self.greylists and to not in self._known:
            self._known.add(to)
            raise Greylisted(host)
        self.sent.append((to, subject))


@dataclass
class Warehouse:
    """Knows what is on the shelves, and gets more of it."""

    stock: dict[str, int] = field(default_factory=dict)

    def take(self, items: Sequence[str]) -> str | None:
        """Take all of them, or none; then the name of one that is missing."""
        missing = next((item for item in items if self.stock.get(item, 0) < items.count(item)), None)
        if missing is None:
            for item in items:
                self.stock[item] -= 1
        return missing

    def order_more(self, item: str) -> None:
        self.stock[item] = self.stock.get(item, 0) + 10


@dataclass
class Books:
    """Numbers invoices without gaps: for a whole batch in one step, and the same number if it is asked again."""

    numbers: dict[int, int] = field(default_factory=dict)

    def number(self, order_ids: Sequence[int]) -> list[int]:
        return [self.numbers.setdefault(order_id, 2_001 + len(self.numbers)) for order_id in order_ids]
