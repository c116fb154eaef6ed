"""The Lua application that runs inside the server: its sources, its version, and how it gets there.

The sources are one row in the server; the functions that users call are stubs that never change and run whatever that
row holds. An upgrade replaces the row. Raise `VERSION` with every change of a Lua file that was released, and let
`install.lua` bring older spaces up to date.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from msgspec.msgpack import Decoder

from accoda.errors import SchemaMismatch
from accoda.storage.tarantool.client import Connection
from accoda.storage.tarantool.errors import ACCESS_DENIED, NO_SUCH_PROC, ServerError, translate

VERSION = 1

_HOW = "run `accoda migrate URL` with an account that may install: admin or a super; see docs/tarantool.md"
_a_number = Decoder(tuple[int])


@cache
def parts() -> tuple[tuple[str, str], ...]:
    """(name, source) of everything that is loaded into the server, in order."""
    lua = files(__package__) / "lua"
    shared = sorted(f"shared/{file.name}" for file in (lua / "shared").iterdir())
    return tuple((name, (lua / name).read_text("utf-8")) for name in (*shared, *(f"verbs/{v}.lua" for v in verbs())))


@cache
def verbs() -> tuple[str, ...]:
    """The functions that users may call, as `accoda_<verb>`."""
    folder = files(__package__) / "lua" / "verbs"
    return tuple(sorted(file.name.removesuffix(".lua") for file in folder.iterdir()))


async def check(connection: Connection) -> None:
    """Refuse a store whose application is missing, too old or too new."""
    found = await installed_version(connection)
    if found is None:
        raise SchemaMismatch(f"{connection.address} has no Accoda application; {_HOW}")
    if found != VERSION:
        what = f"newer than {VERSION}; upgrade Accoda here" if found > VERSION else f"older than {VERSION}; {_HOW}"
        raise SchemaMismatch(f"{connection.address} has version {found} of the application, {what}")


async def install(connection: Connection) -> None:
    """Create or upgrade the application. Does nothing where it is current or newer."""
    found = await installed_version(connection)
    if found is not None and found >= VERSION:
        return
    lua = files(__package__) / "lua"
    script, stub = ((lua / name).read_text("utf-8") for name in ("install.lua", "stub.lua"))
    try:
        await connection.eval(script, (VERSION, parts(), verbs(), stub), _a_number)
    except ServerError as error:
        if error.code != ACCESS_DENIED:
            raise translate(error, connection.address) from error
        state = "no Accoda application" if found is None else f"version {found} of the application"
        raise SchemaMismatch(
            f"{connection.address} has {state}, this Accoda needs version {VERSION}, "
            f"and user {connection.address.user!r} may not install it; {_HOW}"
        ) from error


async def installed_version(connection: Connection) -> int | None:
    """None: nothing is installed."""
    try:
        version: int = await connection.call("version", (None,), _a_number)
        return version
    except ServerError as error:
        if error.code == NO_SUCH_PROC:
            return None
        raise
