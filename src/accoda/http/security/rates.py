"""How many requests each party may send. Pure: the caller brings the time.

A bucket for each key that refills at `rate` a second up to `burst`, kept as one number: the moment at which it would be
full again if nothing came. A request moves that moment on by 1/rate; one that would move it further than burst/rate
beyond now is refused, and moves nothing, so a client that keeps asking is served as soon as one that waits.
"""

from __future__ import annotations

from ipaddress import ip_address

MOST_KEYS = 20_000


class Rates:
    """Buckets by key. `most` bounds the memory: two generations of so many keys are kept.

    When the young generation is full it becomes the old one, and the old one is forgotten. A forgotten client
    begins with a full bucket, so many addresses can never lock a client out: at worst some are counted too gently.

    >>> rates = Rates(rate=1.0, burst=2.0)
    >>> [rates.wait("anna", 0.0) for _ in range(3)]
    [0.0, 0.0, 1.0]
    """

    def __init__(self, rate: float, burst: float, most: int = MOST_KEYS) -> None:
        self._interval = 1.0 / rate
        self._slack = (burst - 1.0) / rate
        self._most = most
        self._young: dict[str, float] = {}
        self._old: dict[str, float] = {}

    def wait(self, key: str, now: float) -> float:
        """Take one from the key's bucket: 0.0, or the seconds until there is one again."""
        full_at = self._young.get(key)
        if full_at is None:
            full_at = self._old.get(key, now)
        if full_at < now:
            full_at = now
        late = full_at - now - self._slack
        if late > 1e-9:
            return late
        self._young[key] = full_at + self._interval
        if len(self._young) > self._most:
            self._old, self._young = self._young, {}
        return 0.0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


def address_key(address: str) -> str:
    """One party for each IPv4 address, and for each /64 of IPv6: a home has a /64, and could send from all of it.

    >>> address_key("2001:db8:1:2:3:4:5:6"), address_key("::ffff:10.0.0.7"), address_key("10.0.0.7")
    ('2001:db8:1:2::', '10.0.0.7', '10.0.0.7')
    """
    if ":" not in address:
        return address
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ip_address(int(found) >> 64 << 64)) if found.version == 6 and not found.is_loopback else str(found)
