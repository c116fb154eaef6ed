"""Who may be called: a name is resolved once, every address of it is judged, and only those judged are connected to."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_network

from msgspec import Struct

from accoda.errors import AccodaError, InvalidInput, SettingsError
from accoda.webhooks.address import Address, Network, fault, read_address
from accoda.webhooks.urls import Place, read_url

VARIABLE = "ACCODA_WEBHOOK_ALLOW"
MOST_ADDRESSES = 64

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a host and a port to its addresses. An `OSError` means that it has none now."""
Fault = Callable[[Address], str | None]


class AddressRefused(AccodaError):
    """The host has an address that must not be called. Carries `host`, `address` and `why`.

    The message does not tell the address of a name: it is read by those who gave the URL, and they need not learn how
    the network behind the workers is numbered.
    """

    def __init__(self, host: str, address: str, why: str) -> None:
        super().__init__(
            f"{host} is refused: its address is not public ({why}); "
            f"whoever runs the workers can allow it with {VARIABLE}"
        )
        self.host = host
        self.address = address
        self.why = why


class Unresolved(AccodaError):
    """The host has no address now. Carries `host`."""

    def __init__(self, host: str, problem: str) -> None:
        super().__init__(f"the name {host} cannot be resolved: {problem}")
        self.host = host


class Policy(Struct, frozen=True):
    """What is allowed although it is not public: networks, and hosts by their name whatever their addresses are."""

    networks: tuple[Network, ...] = ()
    hosts: frozenset[str] = frozenset()
    fault: Fault = fault

    @classmethod
    def read(cls, text: str, source: str = VARIABLE) -> Policy:
        """From a list such as `10.0.0.0/8, 127.0.0.1, hooks.internal`; every mistake in it is named."""
        networks: list[Network] = []
        hosts: set[str] = set()
        problems: list[str] = []
        for entry in filter(None, (part.strip() for part in text.replace(",", " ").split())):
            try:
                found = _entry(entry)
            except ValueError as error:
                problems.append(f"{source}: {error}")
                continue
            if isinstance(found, str):
                hosts.add(found)
            else:
                networks.append(found)
        if problems:
            raise SettingsError(*problems)
        return cls(tuple(networks), frozenset(hosts))

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Policy:
        """What the variable ACCODA_WEBHOOK_ALLOW allows."""
        return cls.read(environment.get(VARIABLE, ""))

    def judge(self, host: str, addresses: Sequence[str]) -> tuple[str, ...]:
        """The addresses as they may be connected to. One that is refused refuses them all: whoever gives a public and
        a private address for one name has nothing good in mind, and which of them is tried first is chance."""
        if not addresses:
            raise Unresolved(host, "it has no address")
        judged = []
        for text in addresses[:MOST_ADDRESSES]:
            address = read_address(text)
            why = None if host.rstrip(".") in self.hosts else self._fault(address)
            if why is not None:
                raise AddressRefused(host, str(address), why)
            judged.append(str(address))
        return tuple(dict.fromkeys(judged))

    def _fault(self, address: Address) -> str | None:
        if any(address.version == network.version and address in network for network in self.networks):
            return None
        return self.fault(address)


class Target(Struct, frozen=True):
    """Where a call goes: the place that its URL names, and the addresses that were judged for it."""

    place: Place
    addresses: tuple[str, ...]


class SystemResolver:
    """The resolver of this machine, in threads of its own: a name that hangs keeps nobody else's threads."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="accoda-names")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        # Other forms of an IPv4 address (2130706433, 0x7f.1) become plain addresses here, before they are judged.
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _addresses, host, port)
        return [str(sockaddr[0]) for _, _, _, _, sockaddr in found]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


async def locate(place: Place, policy: Policy, resolve: Resolve) -> Target:
    """Resolve a place and judge what comes out. This is the only question about the name that is ever asked: what is
    connected to are the addresses in the answer, so a name that answers otherwise a moment later gains nothing."""
    try:
        addresses = await resolve(place.host, place.port)
    except (OSError, UnicodeError) as error:
        raise Unresolved(place.host, getattr(error, "strerror", None) or str(error)) from error
    return Target(place, policy.judge(place.host, addresses))


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, int, int, str, tuple[str | int, ...]]]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)  # type: ignore[return-value]  # typeshed is wider


def _entry(text: str) -> Network | str:
    """A network, or the name of a host."""
    try:
        return ip_network(text)
    except ValueError as error:
        if "/" in text or ":" in text or text.replace(".", "").isdigit():
            hint = "; write the first address of the network" if "host bits" in str(error) else ""
            raise ValueError(f"{text!r:.80} is no network{hint}, such as 10.0.0.0/8 or fd00::/8") from None
    try:
        place = read_url(f"http://{text}/")
    except InvalidInput:
        raise ValueError(f"{text!r:.80} is neither a network (10.0.0.0/8) nor the name of a host") from None
    if place.port != 80 or place.target != "/":
        raise ValueError(f"{text!r:.80} must be the name of a host alone")
    return place.host.rstrip(".")
