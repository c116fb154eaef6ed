"""`accoda serve`: run the HTTP service."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

import click

from accoda.cli.common import APP, load_app, log_options, shown_url
from accoda.cli.draw import echo
from accoda.errors import AccodaError, InvalidInput

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.http.security import Security

log = logging.getLogger("accoda.http")

GRACE = 3
"""Seconds that open requests get when it is stopped; with what follows, it ends within five."""
UNSENT = 128 * 1024
"""Bytes that the system holds for a client before it has room for them. By default it takes some MB for each."""
OTHER_FILES = 64
"""Open files beside the connections: the store's, the log's, the listener."""


@click.command()
@click.argument("app", required=False, metavar="[MODULE:APP]", envvar=APP)
@click.option("--url", metavar="URL", help="Where the jobs are. Or ACCODA_URL.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any that is free.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A name that it is reached by.")
@click.option("--allow-origin", "origins", multiple=True, metavar="ORIGIN", help="Whose pages may call it (CORS).")
@click.option("--no-auth", is_flag=True, help="Ask for no token.")
@click.option("--read-only", is_flag=True, help="Allow no changes: pages and queries only.")
@click.option("--rate", type=float, default=20_000.0, show_default=True, help="Requests a second for each token.")
@click.option("--max-body", default="16MiB", show_default=True, metavar="SIZE", help="The largest request.")
@click.option(
    "--max-connections",
    type=click.IntRange(2, 1_000_000),
    default=900,
    show_default=True,
    help="Connections at once; half of them for one address.",
)
@click.option("--no-system-jobs", is_flag=True, help="Leave schedules and webhooks to workers.")
@log_options
def serve(app: str | None, **given: Any) -> None:
    """Run the HTTP service.

    It listens on loopback. On any other address it needs a token in the store
    (accoda tokens create), or --no-auth. SIGTERM or Ctrl-C ends it with 0.
    """
    import asyncio

    from accoda.app import App
    from accoda.http.extra import require
    from accoda.http.security import check_start
    from accoda.runtime.logs import configure

    require()
    security = _security(given)
    _allow_files(given["max_connections"] + OTHER_FILES)
    served = App(given["url"]) if app is None else load_app(app, given["url"])
    configure(given["log_format"], given["log_level"].upper())
    command = f"accoda serve {app}" if app else "accoda serve"
    named = f"--app {app}" if app and given["url"] is None else None
    check_start(security, asyncio.run(_has_tokens(served)), shown_url(served.url), command, named)
    if security.no_auth:
        log.warning("--no-auth: every client that reaches %s may do everything", security.host)
    if served.url.startswith("memory:"):
        echo("Note: the jobs of memory:// end with this process.", err=True)
    sys.exit(_serve(served, security, given))


def _security(given: dict[str, Any]) -> Security:
    from accoda.http.security import Limits, Security
    from accoda.http.security.hosts import Hosts
    from accoda.http.security.origins import Origins

    security = Security(
        host=given["host"],
        allow_hosts=given["hosts"],
        allow_origins=given["origins"],
        no_auth=given["no_auth"],
        read_only=given["read_only"],
        rate=given["rate"],
        limits=Limits(body=_size(given["max_body"])),
    )
    Hosts(security.host, security.allow_hosts)  # reports what is wrong with them before anything is opened
    Origins(security.allow_origins)
    return security


def _size(text: str) -> int:
    from accoda.limits import BY_NAME

    try:
        return BY_NAME["payload"].read(text)
    except ValueError as error:
        raise InvalidInput("max-body", f"{error}; such as 16MiB") from error


def _allow_files(needed: int) -> None:
    """See to it that so many files may be open: a server that runs out of them loses its store as well."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY not in (soft, hard) and hard < needed:
        problem = f"needs {needed:,} open files, and this process may have {hard:,}"
        raise InvalidInput("max-connections", f"{problem}; choose fewer, or raise the limit with ulimit -n")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


async def _has_tokens(app: App) -> bool:
    """Whether the store has a token; and whether it can be reached."""
    from accoda.http.security.tokens import PREFIX, read

    async with app:
        return bool(read(await app.storage.documents(PREFIX)))


def _serve(app: App, security: Security, given: dict[str, Any]) -> int:
    from accoda.http import ServiceOptions
    from accoda.http.server import Server, configuration, leave_of
    from accoda.service import create_service

    options = ServiceOptions(policy=security, system_jobs=not given["no_system_jobs"], max_body=security.limits.body)
    service = create_service(app, options)
    listener = _listen(security.host, given["port"])
    address = _address(security.host, listener.getsockname()[1])
    config = configuration(service, proxy_headers=False, timeout_graceful_shutdown=GRACE)
    server = Server(
        config,
        leave=leave_of(service),
        started=lambda: _tell(address, app.url),
        most=given["max_connections"],
    )
    _quiet_uvicorn()
    _end_well(server)
    with listener:
        server.run(sockets=[listener])
    return 0 if server.started else 3


def _tell(address: str, url: str) -> None:
    from accoda.http.server import spare_the_collector

    spare_the_collector()
    echo(f"Accoda serves {address} (docs: /docs), store {shown_url(url)}")  # one line: programs wait for it


def _listen(host: str, port: int) -> socket.socket:
    """A bound socket, so that a wrong address is known before the service starts."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InvalidInput("host", f"{host!r:.100} is no address or name of this machine") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # its connections inherit it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, error) from error
    return listener


def _cannot_listen(host: str, port: int, error: OSError) -> AccodaError:
    if error.errno == errno.EADDRINUSE:
        return AccodaError(f"port {port} of {host} is in use; choose another one with --port, or 0 for any")
    if error.errno == errno.EACCES:
        return AccodaError(f"port {port} of {host} may not be opened by this user; choose one from 1024 on with --port")
    if error.errno == errno.EADDRNOTAVAIL:
        return InvalidInput("host", f"{host!r:.100} is no address of this machine")
    return AccodaError(f"cannot listen on port {port} of {host}: {error.strerror}")


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _quiet_uvicorn() -> None:
    """Its errors go where ours go. A line for each malformed request would let any client fill the log."""
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    errors = logging.getLogger("uvicorn.error")
    errors.setLevel(logging.ERROR)
    errors.addFilter(_is_no_cancelled_request)


def _is_no_cancelled_request(record: logging.LogRecord) -> bool:
    """A request that is cut off because the service ends is no error of ours: uvicorn says how many there were."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def _end_well(server: Any) -> None:
    """uvicorn raises the signal again that ended it: ended as asked is a 0.

    A signal that comes before uvicorn listens to them ends the process as well.
    """

    def ended(number: int, frame: object) -> None:
        if not server.should_exit:
            raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ended)
