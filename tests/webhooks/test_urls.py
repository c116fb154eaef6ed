"""What can be said of a URL without resolving it."""

import pytest

from accoda.errors import InvalidInput
from accoda.webhooks.urls import ParsedUrl, read_url

GOOD = {
    "https://example.com": ParsedUrl("https", "example.com", 443, "/"),
    "HTTP://Example.COM:8080/a?b=c&d": ParsedUrl("http", "example.com", 8080, "/a?b=c&d"),
    "https://example.com?x=1": ParsedUrl("https", "example.com", 443, "/?x=1"),
    "http://[2606:4700::1111]:8000/": ParsedUrl("http", "2606:4700::1111", 8000, "/"),
    "https://bücher.example/é": ParsedUrl("https", "xn--bcher-kva.example", 443, "/%C3%A9"),
    "https://faß.de/": ParsedUrl("https", "xn--fa-hia.de", 443, "/"),
    "http://①②⑦.⓪.⓪.①/": ParsedUrl("http", "127.0.0.1", 80, "/"),
    "https://my_host.example.com./a%20b": ParsedUrl("https", "my_host.example.com.", 443, "/a%20b"),
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
    "https://-example.com/": "is not a host name",
    "https://exa..mple.com/": "is not a host name",
    "https://%31%32%37.0.0.1/": "is not a host name",
    f"https://{'a' * 64}.com/": "is not a host name",
    f"https://{'a.' * 130}com/": "is not a host name",
    "https://xn--\u00df\u0301\u0301.com/": "is not a host name",
    f"https://example.com/{'x' * 2000}": "2,020 characters",
}


@pytest.mark.parametrize("url", GOOD)
def test_a_good_url_is_read(url: str) -> None:
    read_url(url)
    assert read_url(url) == GOOD[url]


@pytest.mark.parametrize("url", BAD)
def test_a_bad_url_is_refused_with_its_fault(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_url(url)
    assert caught.value.field == "webhookUrl" and BAD[url] in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("value", [None, 7, b"https://example.com", ["https://example.com"]])
def test_a_url_that_is_not_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="must be a URL"):
        read_url(value)
