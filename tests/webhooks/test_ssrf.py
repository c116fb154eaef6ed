"""Attacks by a webhook's URL. Nothing here sends a packet to an address that is not loopback, and that is observed."""

import pytest
from aiohttp import web
from webhook_calls import LOOPBACK, Calls, Names, Receiver, Wire

from accoda.webhooks import sender
from accoda.webhooks.address import Address, fault
from accoda.webhooks.dispatcher import DispatchLimits
from accoda.webhooks.guard import Policy

# Numbers: the system resolves them without asking a name server.
NUMBERS = {
    "http://127.0.0.1/": "loopback",
    "http://127.8.8.8/": "loopback",
    "http://127.1/": "loopback",
    "http://2130706433/": "loopback",
    "http://0x7f.1/": "loopback",
    "http://0x7f000001/": "loopback",
    "http://017700000001/": "loopback",
    "http://0177.0.0.1/": "loopback",
    "http://①②⑦.⓪.⓪.①/": "loopback",
    "http://0.0.0.0/": "unspecified",
    "http://0/": "unspecified",
    "http://10.0.0.1/": "private",
    "http://172.16.0.1/": "private",
    "http://192.168.1.1/": "private",
    "http://3232235777/": "private",
    "http://169.254.169.254/latest/meta-data/": "link-local",
    "http://0xa9fea9fe/": "link-local",
    "http://100.64.0.1/": "CGNAT",
    "http://100.100.100.200/": "CGNAT",
    "http://168.63.129.16/": "Azure",
    "http://192.0.0.192/": "reserved",
    "http://203.0.113.7/": "documentation",
    "http://224.0.0.1/": "multicast",
    "http://255.255.255.255/": "broadcast",
    "http://[::1]/": "loopback",
    "http://[::]/": "unspecified",
    "http://[::ffff:127.0.0.1]/": "loopback",
    "http://[::ffff:a9fe:a9fe]/": "link-local",
    "http://[::127.0.0.1]/": "old IPv6 form",
    "http://[fe80::1]/": "link-local",
    "http://[fc00::1]/": "private",
    "http://[fd00:ec2::254]/": "private",
    "http://[ff02::1]/": "multicast",
    "http://[64:ff9b::127.0.0.1]/": "stands for an IPv4 address: loopback",
    "http://[64:ff9b::a9fe:a9fe]/": "stands for an IPv4 address: link-local",
    "http://[2002:7f00:1::]/": "stands for an IPv4 address: loopback",
    "http://[2001:0:a00:1::]/": "stands for an IPv4 address: a private",
    "http://[2001:db8::1]/": "documentation",
}
# Names, and the addresses that an attacker's name server gives for them.
NAMES = {
    "http://localhost:8080/": (["127.0.0.1", "::1"], "loopback"),
    "http://127.0.0.1.nip.test/": (["127.0.0.1"], "loopback"),
    "http://127.0.0.1./": (["127.0.0.1"], "loopback"),
    "https://metadata.test/": (["169.254.169.254"], "link-local"),
    "https://both.test/": (["93.184.215.14", "10.0.0.1"], "private"),
    "https://six.test/": (["2606:4700::1111", "::1"], "loopback"),
    "https://mapped.test/": (["::ffff:192.168.0.1"], "private"),
    "https://scoped.test/": (["fe80::1%1"], "link-local"),
}
SYNTAX = {
    "file:///etc/passwd": "must start with",
    "gopher://127.0.0.1:6379/_FLUSHALL": "must start with",
    "http://example.com@127.0.0.1/": "user or password",
    "http://example.com\\@127.0.0.1/": "no URL may have",
    "http://127.0.0.1:22/": "port 22",
    "http://127.0.0.1:6379/": "port 6379",
    "http://example.com/\r\nHost: internal": "no URL may have",
    "http://%31%32%37.0.0.1/": "is not a host name",
    "http://[fe80::1%25eth0]/": "IPv6",
}


async def dead_reason(calls: Calls, url: str, **options: object) -> str:
    """Call a URL under the usual policy; why it was buried, on its first try."""
    id = await calls.add(url)
    assert await calls.loop(policy=Policy(), **options).run_once(calls.store) == 1
    info = await calls.info(id)
    assert (info.state, info.attempts) == ("dead", 0), info.reason
    return info.reason or ""


async def test_the_observers_would_see_a_connection(calls: Calls, receiver: Receiver, wire: Wire) -> None:
    await calls.add(receiver.url)
    await calls.loop().run_once(calls.store)
    assert len(receiver.got) == 1
    assert wire.asked == wire.opened == wire.connects == ["127.0.0.1"]


@pytest.mark.parametrize("url", NUMBERS)
async def test_an_address_in_any_form_is_refused_before_any_connection(calls: Calls, wire: Wire, url: str) -> None:
    reason = await dead_reason(calls, url)
    assert "is refused" in reason and NUMBERS[url] in reason
    assert not wire.asked and not wire.connects


@pytest.mark.parametrize("url", NAMES)
async def test_a_name_that_leads_inside_is_refused_before_any_connection(calls: Calls, wire: Wire, url: str) -> None:
    addresses, words = NAMES[url]
    names = Names(addresses)
    reason = await dead_reason(calls, url, resolve=names)
    assert "is refused" in reason and words in reason and len(names.asked) == 1
    assert "10.0.0.1" not in reason and "192.168" not in reason  # internal addresses are not revealed
    assert not wire.asked and not wire.connects


@pytest.mark.parametrize("url", SYNTAX)
async def test_a_url_that_slipped_in_is_refused_before_its_name_is_resolved(calls: Calls, wire: Wire, url: str) -> None:
    names = Names(["127.0.0.1"])
    assert SYNTAX[url] in await dead_reason(calls, url, resolve=names)
    assert not names.asked and not wire.asked and not wire.connects


def only(public: str) -> Policy:
    """A policy that treats one reserved address as public: the real one refuses every address a test could use."""

    def check(address: Address) -> str | None:
        return None if str(address) == public else fault(address)

    return Policy(fault=check)


async def test_a_name_that_changes_after_the_check_is_not_asked_again(calls: Calls, wire: Wire) -> None:
    names = Names(["203.0.113.7"], ["127.0.0.1"])
    wire.cut = True  # no packet may leave for 203.0.113.7
    id = await calls.add("http://rebind.test:8080/")
    await calls.loop(policy=only("203.0.113.7"), resolve=names).run_once(calls.store)
    assert names.asked == ["rebind.test"]
    assert wire.opened == ["203.0.113.7"] and not wire.connects
    info = await calls.info(id)
    assert info.state == "delayed" and "no connection" in (info.reason or "")


async def test_at_the_next_try_the_name_is_checked_again(calls: Calls, wire: Wire) -> None:
    names = Names(["203.0.113.7"], ["127.0.0.1"])
    wire.cut = True
    id = await calls.add("http://rebind.test:8080/")
    loop = calls.loop(policy=only("203.0.113.7"), resolve=names)
    await loop.run_once(calls.store)
    calls.clock.advance(10)
    await loop.run_once(calls.store)
    assert (await calls.info(id)).state == "dead" and wire.asked == ["203.0.113.7"]


async def test_the_connection_goes_to_the_checked_address(calls: Calls, receiver: Receiver, wire: Wire) -> None:
    names = Names(["127.0.0.1"], ["10.0.0.1"])
    await calls.add(f"http://hooks.test:{receiver.port}/in")
    assert await calls.loop(resolve=names).run_once(calls.store) == 1
    assert names.asked == ["hooks.test"] and wire.connects == ["127.0.0.1"]
    assert receiver.got[0].headers["host"] == f"hooks.test:{receiver.port}"


async def test_no_socket_is_opened_for_an_address_that_was_not_checked(
    calls: Calls, receiver: Receiver, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if aiohttp resolved the name by itself: here its resolver gives another address."""
    result = sender.ResolveResult
    monkeypatch.setattr(sender, "ResolveResult", lambda **fields: result(**{**fields, "host": "127.0.0.1"}))
    id = await calls.add(f"http://hooks.test:{receiver.port}/in")
    await calls.loop(policy=only("203.0.113.7"), resolve=Names(["203.0.113.7"])).run_once(calls.store)
    assert wire.asked == ["127.0.0.1"] and not wire.opened and not wire.connects and not receiver.got
    assert "not the one that was checked" in ((await calls.info(id)).reason or "")


async def test_a_redirect_inside_is_not_followed(calls: Calls, receiver: Receiver, wire: Wire) -> None:
    async def redirect(_: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": f"http://localhost:{receiver.port}/admin"})

    receiver.answer = redirect
    id = await calls.add(receiver.url)
    await calls.loop().run_once(calls.store)
    assert len(receiver.got) == 1 and len(wire.asked) == 1
    assert "redirects are not followed" in ((await calls.info(id)).reason or "")


async def test_a_proxy_of_the_environment_is_not_used(
    calls: Calls, receiver: Receiver, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.9:9")
    await calls.add(receiver.url)
    await calls.loop().run_once(calls.store)
    assert len(receiver.got) == 1 and wire.connects == ["127.0.0.1"]


async def test_other_forms_of_an_allowed_address_are_called_as_that_address(
    calls: Calls, receiver: Receiver, wire: Wire
) -> None:
    await calls.add(f"http://2130706433:{receiver.port}/")
    await calls.add(f"http://0x7f.1:{receiver.port}/")
    await calls.add(f"http://[::ffff:7f00:1]:{receiver.port}/")
    assert await calls.loop(policy=LOOPBACK).run_once(calls.store) == 3
    assert len(receiver.got) == 3 and set(wire.connects) == {"127.0.0.1"}


async def test_the_variable_of_the_environment_allows(
    calls: Calls, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCODA_WEBHOOK_ALLOW", "127.0.0.0/8")
    await calls.add(receiver.url)
    await calls.loop(policy=None).run_once(calls.store)
    assert len(receiver.got) == 1


async def test_a_connection_is_not_used_for_a_second_call(calls: Calls, receiver: Receiver, wire: Wire) -> None:
    """The second call was checked for another address, so it must not use the connection of the first."""
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    for _ in range(2):
        await calls.add(f"http://hooks.test:{receiver.port}/")
    loop = calls.loop(policy=Policy.read("127.0.0.0/8"), resolve=names, limits=DispatchLimits(per_host=1))
    assert await loop.run_once(calls.store) == 2
    assert wire.connects == ["127.0.0.1", "127.0.0.2"] and len(receiver.got) == 1
