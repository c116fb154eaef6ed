"""Which addresses may be called: public ones only. Pure.

A worker runs inside a network that outsiders cannot reach, and a webhook's URL may come from an outsider. So an address
that means something only inside (this machine, this network, the cloud's own services) is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# IANA's special-purpose registries, and addresses on which clouds answer. The first that matches gives the reason.
_REASONS = {
    "127.0.0.0/8": "loopback: this machine itself",
    "0.0.0.0/8": "unspecified: it means this machine",
    "10.0.0.0/8": "a private network",
    "172.16.0.0/12": "a private network",
    "192.168.0.0/16": "a private network",
    "169.254.0.0/16": "link-local, where clouds keep the credentials of a machine",
    "100.64.0.0/10": "shared by the customers of a provider (CGNAT)",
    "192.0.0.0/24": "reserved for protocols",
    "192.0.2.0/24": "reserved for documentation",
    "198.51.100.0/24": "reserved for documentation",
    "203.0.113.0/24": "reserved for documentation",
    "192.88.99.0/24": "reserved (6to4 relays)",
    "198.18.0.0/15": "reserved for benchmarks",
    "168.63.129.16/32": "the host of a machine at Azure",
    "224.0.0.0/4": "multicast",
    "255.255.255.255/32": "broadcast",
    "240.0.0.0/4": "reserved",
    "::1/128": "loopback: this machine itself",
    "::/128": "unspecified: it means this machine",
    "::/96": "an IPv4 address in an old IPv6 form",
    "64:ff9b:1::/48": "a translation to IPv4 that is local",
    "100::/64": "reserved (discard)",
    "2001:db8::/32": "reserved for documentation",
    "3fff::/20": "reserved for documentation",
    "fc00::/7": "a private network",
    "fe80::/10": "link-local",
    "fec0::/10": "a private network",
    "ff00::/8": "multicast",
}
_SPECIAL: tuple[tuple[Network, str], ...] = tuple((ip_network(text), words) for text, words in _REASONS.items())
_PROTOCOLS = IPv6Network("2001::/23")
_GLOBAL = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
_V4 = (1 << 32) - 1


def read_address(text: str) -> Address:
    """An address from a resolver; an IPv4 address mapped into IPv6 becomes that IPv4 address.

    >>> read_address("::ffff:127.0.0.1")
    IPv4Address('127.0.0.1')
    """
    found = ip_address(text)
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


def fault(address: Address) -> str | None:
    """Why an address must not be called; None if it is public.

    >>> fault(read_address("10.1.2.3")), fault(read_address("93.184.215.14"))
    ('a private network', None)
    """
    for network, words in _SPECIAL:
        if address.version == network.version and address in network:
            return words
    if isinstance(address, IPv4Address):
        return None
    if address.scope_id is not None:
        return "it names an interface of this machine"
    for inner in embedded(address):
        if (inner_fault := fault(inner)) is not None:
            return f"it stands for an IPv4 address: {inner_fault}"
    if address in _NAT64 or address.teredo:
        return None
    if address in _PROTOCOLS:
        return "reserved for protocols"
    return None if address in _GLOBAL else "not a public address"


def embedded(address: IPv6Address) -> Sequence[IPv4Address]:
    """The IPv4 addresses to which a translator or a tunnel would send it (NAT64, 6to4, Teredo, ISATAP)."""
    number = int(address)
    if address in _NAT64 or (number >> 32) & _V4 in _ISATAP:
        return (IPv4Address(number & _V4),)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    return address.teredo or ()
