"""Which hosts may be called: a name is resolved once, its addresses are checked, and only those are connected to."""

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
from accoda.webhooks.urls import ParsedUrl, read_url

VARIABLE = "ACCODA_WEBHOOK_ALLOW"
MOST_ADDRESSES = 64

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a host and a port to its addresses. An `OSError` means that it has none at present."""
Fault = Callable[[Address], str | None]


class AddressRefused(AccodaError):
    """The host has an address that must not be called. Carries `host`, `address` and `why`.

    The message does not contain the address: it is shown to the user who gave the URL, and must not reveal how the
    network behind the workers is numbered.
    """

    def __init__(self, host: str, address: str, why: str) -> None:
        super().__init__(
            f"{host} is refused: its address is not public ({why}); "
            f"the operator of the workers can allow it with {VARIABLE}"
        )
        self.host = host
        self.address = address
        self.why = why


class Unresolved(AccodaError):
    """The host has no address at present. Carries `host`."""

    def __init__(self, host: str, problem: str) -> None:
        super().__init__(f"the name {host} cannot be resolved: {problem}")
        self.host = host


class Policy(Struct, frozen=True):
    """What is allowed although it is not public: networks, and hosts by name whatever their addresses are."""

    networks: tuple[Network, ...] = ()
    hosts: frozenset[str] = frozenset()
    fault: Fault = fault

    @classmethod
    def read(cls, text: str, source: str = VARIABLE) -> Policy:
        """From a list such as `10.0.0.0/8, 127.0.0.1, hooks.internal`; the error names every mistake in it."""
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

    def check(self, host: str, addresses: Sequence[str]) -> tuple[str, ...]:
        """The addresses that may be connected to. One refused address refuses them all: a name with a public and a
        private address is suspicious, and which of them would be tried first is chance."""
        if not addresses:
            raise Unresolved(host, "it has no address")
        checked = []
        for text in addresses[:MOST_ADDRESSES]:
            address = read_address(text)
            why = None if host.rstrip(".") in self.hosts else self._fault(address)
            if why is not None:
                raise AddressRefused(host, str(address), why)
            checked.append(str(address))
        return tuple(dict.fromkeys(checked))

    def _fault(self, address: Address) -> str | None:
        if any(address.version == network.version and address in network for network in self.networks):
            return None
        return self.fault(address)


class Target(Struct, frozen=True):
    """Where a call goes: its URL, and the addresses that were checked for it."""

    url: ParsedUrl
    addresses: tuple[str, ...]


class SystemResolver:
    """The system's resolver, in threads of its own: a name that hangs must not block other users of threads."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="accoda-names")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        # Other forms of an IPv4 address (2130706433, 0x7f.1) become plain addresses here, before they are checked.
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _addresses, host, port)
        return [str(sockaddr[0]) for _, _, _, _, sockaddr in found]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


async def locate(url: ParsedUrl, policy: Policy, resolve: Resolve) -> Target:
    """Resolve a URL's host and check its addresses. The name is resolved only here, and only these addresses are
    connected to, so a name that resolves differently a moment later gains nothing."""
    try:
        addresses = await resolve(url.host, url.port)
    except (OSError, UnicodeError) as error:
        raise Unresolved(url.host, getattr(error, "strerror", None) or str(error)) from error
    return Target(url, policy.check(url.host, addresses))


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
        parsed = read_url(f"http://{text}/")
    except InvalidInput:
        raise ValueError(f"{text!r:.80} is neither a network (10.0.0.0/8) nor the name of a host") from None
    if parsed.port != 80 or parsed.target != "/":
        raise ValueError(f"{text!r:.80} must be the name of a host alone")
    return parsed.host.rstrip(".")
