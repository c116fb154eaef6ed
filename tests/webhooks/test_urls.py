"""What can be said of a URL without resolving it."""

import pytest

from accoda.errors import InvalidInput
from accoda.webhooks import check_url
from accoda.webhooks.urls import Place, read_url

GOOD = {
    "https://example.com": Place("https", "example.com", 443, "/"),
    "HTTP://Example.COM:8080/a?b=c&d": Place("http", "example.com", 8080, "/a?b=c&d"),
    "https://example.com?x=1": Place("https", "example.com", 443, "/?x=1"),
    "http://[2606:4700::1111]:8000/": Place("http", "2606:4700::1111", 8000, "/"),
    "https://bücher.example/é": Place("https", "xn--bcher-kva.example", 443, "/%C3%A9"),
    "https://faß.de/": Place("https", "xn--fa-hia.de", 443, "/"),
    "http://①②⑦.⓪.⓪.①/": Place("http", "127.0.0.1", 80, "/"),
    "https://my_host.example.com./a%20b": Place("https", "my_host.example.com.", 443, "/a%20b"),
}
BAD = {
    "": "must be a URL",
    "example.com/hook": "must start with",
    "ftp://example.com/": "must start with",
    "file:///etc/passwd": "must start with",
    "javascript:alert(1)": "must start with",
    "gopher://example.com:70/_x": "must start with",
    "https://": "needs a host",
    "https:///path": "needs a host",
    "https://:443/": "needs a host",
    "https://user:secret@example.com/": "user or password",
    "https://example.com@10.0.0.1/": "user or password",
    "https://example.com\\@10.0.0.1/": "no URL may have",
    "https://example.com/\r\nX-Admin: 1": "no URL may have",
    "https://example.com/\x00": "no URL may have",
    "https://exam ple.com/": "no URL may have",
    "https://example.com/\u2028": "no URL may have",
    "https://example.com/\ud800": "no URL may have",
    "https://example.com/#x": "fragment",
    "https://example.com:22/": "port 22",
    "https://example.com:0/": "port 0",
    "https://example.com:6379/": "port 6379",
    "https://example.com:99999/": "port 99999",
    "https://example.com:80:80/": "needs a host",
    "https://[::1/": "needs a host",
    "https://[fe80::1%25eth0]/": "IPv6",
    "https://[nonsense]/": "IPv6",
    "https://-example.com/": "no name of a host",
    "https://exa..mple.com/": "no name of a host",
    "https://%31%32%37.0.0.1/": "no name of a host",
    f"https://{'a' * 64}.com/": "no name of a host",
    f"https://{'a.' * 130}com/": "no name of a host",
    "https://xn--\u00df\u0301\u0301.com/": "no name of a host",
    f"https://example.com/{'x' * 2000}": "2,020 characters",
}


@pytest.mark.parametrize("url", GOOD)
def test_a_good_url_is_read(url: str) -> None:
    check_url(url)
    assert read_url(url) == GOOD[url]


@pytest.mark.parametrize("url", BAD)
def test_a_bad_url_is_refused_with_its_fault(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_url(url)
    assert caught.value.field == "webhookUrl" and BAD[url] in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("value", [None, 7, b"https://example.com", ["https://example.com"]])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="must be a URL"):
        check_url(value)


def test_the_authority_is_what_the_host_header_has() -> None:
    assert read_url("http://[::1]:81000".replace("81000", "8100")).authority == "[::1]:8100"
    assert read_url("https://a.b:443/").authority == "a.b"
