"""What guards a service, as one record; and whether it may start with it. Pure."""

from __future__ import annotations

from msgspec import Struct

from accoda.errors import InvalidInput
from accoda.http.security.bodies import Limits
from accoda.http.security.hosts import is_loopback

RATE = 20_000.0


class Security(Struct, frozen=True, kw_only=True):
    """Where the service listens, which callers it answers, and how much it accepts.

    A token is needed if the store has any, or if `host` is not loopback. `no_auth` asks for none, whatever there is.
    `rate` is requests a second for each token, or for each address where there is no token; `burst` is twice that
    unless it is told. `read_only` refuses every change, whatever the token.
    """

    host: str = "127.0.0.1"
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    no_auth: bool = False
    read_only: bool = False
    rate: float = RATE
    burst: float | None = None
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1e9:
            raise InvalidInput("rate", f"must be a number of requests a second above 0, not {self.rate!r:.40}")
        if self.burst is not None and not 1 <= self.burst <= 1e9:
            raise InvalidInput("burst", f"must be a number of requests from 1 on, not {self.burst!r:.40}")
        if self.limits.body < 1024:
            raise InvalidInput("max-body", f"must be at least 1024 bytes, not {self.limits.body}")

    @property
    def full_burst(self) -> float:
        return self.burst if self.burst is not None else max(1.0, 2 * self.rate)

    def needs_token(self, has_tokens: bool) -> bool:
        """Whether a request without a token is anonymous.

        >>> Security().needs_token(False), Security().needs_token(True), Security(host="0.0.0.0").needs_token(False)
        (False, True, True)
        """
        return not self.no_auth and (has_tokens or not is_loopback(self.host))


def check_start(
    security: Security, has_tokens: bool, url: str, serve: str = "accoda serve", store: str | None = None
) -> None:
    """Refuse to listen where others can reach it while there is no token; say what to type.

    `url` is the store's, as people may see it; `serve` is the command so far, `store` the option that names the store.
    """
    if security.no_auth or has_tokens or is_loopback(security.host):
        return
    named = store or f"--url {url}"
    start = f"{serve} --host {security.host}" + ("" if named.startswith("--app") else f" {named}")
    raise InvalidInput(
        "host",
        f"{security.host} can be reached from other machines, and {url} has no token yet. Make one and start again:\n"
        f"  accoda tokens create NAME --scope admin {named}\n"
        f"  {start}\n"
        f"or, if every client that reaches it may do everything:\n  {start} --no-auth",
    )
