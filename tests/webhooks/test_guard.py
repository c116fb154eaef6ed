"""Which hosts may be called."""

import pytest
from webhook_calls import Names

from accoda.errors import SettingsError
from accoda.webhooks.guard import AddressRefused, Policy, SystemResolver, Unresolved, locate
from accoda.webhooks.urls import read_url


def test_networks_addresses_and_hosts_can_be_allowed() -> None:
    policy = Policy.of_environment(
        {"ACCODA_WEBHOOK_ALLOW": "10.0.0.0/8, 127.0.0.1,hooks.Internal\tfd00::/8 bücher.test."}
    )
    assert policy.check("x.test", ["10.9.8.7", "fd00::1", "127.0.0.1", "::ffff:10.1.1.1"])
    assert policy.check("hooks.internal", ["192.168.0.9"]) == policy.check("hooks.internal.", ["192.168.0.9"])
    assert policy.check("xn--bcher-kva.test", ["192.168.0.9"])
    for address in ("127.0.0.2", "192.168.0.9", "169.254.169.254", "64:ff9b::10.0.0.1"):
        with pytest.raises(AddressRefused):
            policy.check("x.test", [address])


def test_nothing_is_allowed_unless_it_is_said() -> None:
    assert Policy.of_environment({}) == Policy() == Policy.read(" , ")


def test_every_mistake_in_the_list_is_named() -> None:
    with pytest.raises(SettingsError) as caught:
        Policy.read("10.0.0.1/8, 300.1.2.3, fe80::/200, http://x, a:80, ok.test, 10.0.0.0/8")
    problems = caught.value.problems
    assert len(problems) == 5 and all(problem.startswith("ACCODA_WEBHOOK_ALLOW: ") for problem in problems)
    assert "'10.0.0.1/8' is no network; write the first address" in problems[0]


def test_one_bad_address_refuses_all() -> None:
    with pytest.raises(AddressRefused) as caught:
        Policy().check("rebind.test", ["93.184.215.14", "10.0.0.1"])
    assert (caught.value.host, caught.value.address) == ("rebind.test", "10.0.0.1")
    assert "a private network" in str(caught.value) and "ACCODA_WEBHOOK_ALLOW" in str(caught.value)


async def test_a_name_is_asked_for_once_and_its_addresses_are_the_target() -> None:
    names = Names(["93.184.215.14", "93.184.215.14", "2606:4700::1111"])
    target = await locate(read_url("https://a.test"), Policy(), names)
    assert target.addresses == ("93.184.215.14", "2606:4700::1111") and names.asked == ["a.test"]


async def test_a_name_without_addresses_is_unresolved() -> None:
    with pytest.raises(Unresolved, match=r"a\.test"):
        await locate(read_url("https://a.test"), Policy(), Names([]))


@pytest.mark.parametrize("form", ["2130706433", "0x7f.1", "017700000001", "127.1", "0177.0.0.1", "0x7f000001"])
async def test_the_resolver_turns_other_forms_of_an_address_into_plain_ones(form: str) -> None:
    resolver = SystemResolver(1)
    try:
        assert await resolver(form, 80) == ["127.0.0.1"]
    finally:
        resolver.close()
