"""The Lua application that runs inside the server: its sources, its version, and how it gets there.

The sources are one row in the server; the functions that users call are stubs that never change and run whatever that
row holds. An upgrade replaces the row. Raise `REVISION` with every change of a Lua file that was released, and let
`install.lua` bring older spaces up to date. Raise `VERSION`, too, where older clients cannot call the new functions:
they compare it with theirs, and refuse a higher one. So a worker of an older release goes on beside newer ones as long
as the version stays.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from accoda.errors import SchemaMismatch
from accoda.storage.tarantool.connection import Connection, ServerError
from accoda.storage.tarantool.errors import ACCESS_DENIED, NO_SUCH_PROC, translate
from accoda.storage.tarantool.rows import INT

VERSION = 2  # 2: jobs know how often they crashed, and since when that counts
# 3: bounded work in each call, damaged records set aside, purge by age; 4: peek, drop; 5: start_now; 6: place
# 7: bells say that a job is ready, looks that a queue is paused
REVISION = 7

_HOW = "run `accoda migrate URL` with an account that may install: admin or a super; see docs/tarantool.md"


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
    if found > VERSION:
        raise SchemaMismatch(
            f"{connection.address} has version {found} of the application, newer than {VERSION}; upgrade Accoda here"
        )
    revision = await installed_revision(connection)
    if revision < REVISION:
        raise SchemaMismatch(
            f"{connection.address} has revision {revision} of the application, older than {REVISION}; {_HOW}"
        )


async def install(connection: Connection) -> None:
    """Create or upgrade the application. Does nothing where it is current or newer."""
    found = await installed_version(connection)
    if found is not None and (found > VERSION or await installed_revision(connection) >= REVISION):
        return
    lua = files(__package__) / "lua"
    script, stub = ((lua / name).read_text("utf-8") for name in ("install.lua", "stub.lua"))
    try:
        await connection.eval(script, (VERSION, parts(), verbs(), stub, REVISION), INT)
    except ServerError as error:
        if error.code != ACCESS_DENIED:
            raise translate(error, connection.address) from error
        state = "no Accoda application" if found is None else "an older revision of the application"
        raise SchemaMismatch(
            f"{connection.address} has {state}, this Accoda needs revision {REVISION}, "
            f"and user {connection.address.user!r} may not install it; {_HOW}"
        ) from error


async def installed_version(connection: Connection) -> int | None:
    """None: nothing is installed."""
    try:
        version: int = await connection.call("version", (None,), INT)
        return version
    except ServerError as error:
        if error.code == NO_SUCH_PROC:
            return None
        raise


async def installed_revision(connection: Connection) -> int:
    """Applications from before there were revisions give their version."""
    revision: int = await connection.call("version", (None, True), INT)
    return revision
