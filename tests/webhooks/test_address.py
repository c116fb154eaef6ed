"""Which addresses are public."""

import pytest

from accoda.webhooks.address import fault, read_address

PUBLIC = (
    "8.8.8.8 93.184.215.14 1.1.1.1 172.15.255.255 172.32.0.0 100.63.255.255 100.128.0.0 169.253.1.1 223.255.255.255 "
    "192.0.1.1 198.17.0.1 198.20.0.1 2606:4700::1111 2a00:1450:4001::1 2001:4860:4860::8888 64:ff9b::8.8.8.8 "
    "2002:808:808::1 ::ffff:8.8.8.8"
)
REFUSED = (
    "127.0.0.1 127.255.255.254 0.0.0.0 0.1.2.3 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 "
    "100.64.0.1 "
    "100.100.100.200 192.0.0.192 192.0.2.1 198.51.100.1 203.0.113.7 192.88.99.1 198.18.0.1 168.63.129.16 224.0.0.1 "
    "239.255.255.250 240.0.0.1 255.255.255.255 "
    ":: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 fe80::1 "
    "fe80::1%1 febf::1 fec0::1 "
    "fc00::1 fd00:ec2::254 ff02::1 100::1 2001:db8::1 3fff::1 5f00::1 4000::1 2001:10::1 2001:2::1 64:ff9b:1::8.8.8.8 "
    "64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b::169.254.169.254 2002:7f00:1::1 2002:a00:1::1 2002:a9fe:a9fe::1 "
    "2001:0:a00:1::1 2001:0:808:808:0:0:80ff:fffe 2606:4700::5efe:127.0.0.1 2606:4700::200:5efe:10.0.0.1 "
    "2606:4700::1111%1"
)


@pytest.mark.parametrize("text", PUBLIC.split())
def test_a_public_address_may_be_called(text: str) -> None:
    assert fault(read_address(text)) is None


@pytest.mark.parametrize("text", REFUSED.split())
def test_an_address_that_is_not_public_has_a_fault(text: str) -> None:
    assert fault(read_address(text))
