"""Runs scripts on the server over one lean connection, and repeats them where that is safe.

`Connection` sends commands in the order of the calls; replies come back in that order. Calls of many tasks share it
without waiting for each other, and what is sent within one turn of the event loop goes out in one write: this is the
pipelining. `docs/decisions/0004-redis.md` compares it with redis-py.

`Client` is the one place that knows what an error of Redis means. What it repeats, and why it may:

- Most scripts that change something carry a call number, and the script remembers the answer under it until the client
  has seen it (lua/parts/once.lua): sent again, it does nothing.
- `take` names its batch itself: sent again, it gives the same batch.
- `extend` and `pause` set things to what they are already. The rest only reads.

So every call is repeated after a lost connection, a fail-over or a moved slot, until the patience is over. Then the
caller gets `StorageUnavailable`. A master that fails over before its replica had the last writes forgets them with
their answers; `wait_replicas` makes a call wait until they have arrived.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, cast

import hiredis
from msgspec import Struct

from accoda.clock import Clock
from accoda.errors import StorageClosed, StorageError, StorageUnavailable
from accoda.storage.common.reconnecting import Backoff, OutageLog, patience_of
from accoda.storage.redis.keys import Shard
from accoda.storage.redis.replies import Address, TryAgain, address_in, raise_for
from accoda.storage.redis.scripts import Script

Argument = bytes | str | int
Push = Callable[[Any], None]

_pack: Callable[[tuple[Argument, ...]], bytes] = cast(Any, hiredis.pack_command)

_FORGET = 16  # calls that are forgotten together: each time is one more command for the server
_REFRESH = 60.0  # seconds after which the memory of a client's calls is told to live on; it does for an hour
# What the reader raises for bytes that are no replies: besides its own error, for an array of four billion (no memory)
# and for a map with a list as a key.
_NONSENSE = (hiredis.ProtocolError, MemoryError, TypeError)


class ConnectionLost(Exception):
    """The connection ended; whether the commands without a reply were carried out is not known."""


class Connection(asyncio.Protocol):
    """`timeout` is how long the server may stay silent while it owes a reply."""

    def __init__(self, timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._on_push: Push | None = None
        self._reader = hiredis.Reader()
        self._owed: deque[asyncio.Future[Any]] = deque()
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._gathers = False  # whether the transport itself puts the writes of a turn together
        self._heard_at = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._ended = asyncio.Event()
        self.lost: ConnectionLost | None = None

    # -- for callers

    def send(self, *command: Argument, at_once: bool = False) -> asyncio.Future[Any]:
        """Its future reply. An error reply is a result too: a `hiredis.ReplyError`.

        `at_once`: nothing that could go with it is to be expected in this turn of the loop.
        """
        reply = self._loop.create_future()
        if self.lost is not None:
            reply.set_exception(self.lost)
            return reply
        if not self._owed:
            self._heard_at = self._loop.time()
            if self._watch is None:
                self._watch = self._loop.call_later(self._timeout, self._look_for_silence)
        self._owed.append(reply)
        self._write(command, at_once)
        return reply

    def tell(self, *command: Argument) -> None:
        """Send a command whose answer comes as a push: SUBSCRIBE and its like."""
        if self.lost is None:
            self._write(command)

    def listen(self, on_push: Push | None) -> None:
        """From now on, everything that arrives goes to `on_push`, and in the end the `ConnectionLost`."""
        self._on_push = on_push

    def abort(self, why: str) -> None:
        """End it now; calls that wait for a reply fail."""
        self._fail(why)
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        await self._ended.wait()

    @property
    def peer(self) -> str:
        """The address of the server."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if name else "?"

    def _write(self, command: tuple[Argument, ...], at_once: bool = False) -> None:
        packed = _pack(command)
        if self._out:  # what was sent before goes before
            self._out.append(packed)
        elif (at_once or self._gathers) and self._transport is not None:
            self._transport.write(packed)
        else:
            self._loop.call_soon(self._flush)
            self._out.append(packed)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and self.lost is None:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _look_for_silence(self) -> None:
        """One timer for the connection, not one for each call."""
        self._watch = None
        if not self._owed or self.lost is not None:
            return
        silent_for = self._loop.time() - self._heard_at
        if silent_for >= self._timeout:
            self.abort(f"no answer for {self._timeout:g} s")
        else:
            self._watch = self._loop.call_later(self._timeout - silent_for, self._look_for_silence)

    def _fail(self, why: str) -> None:
        if self.lost is not None:
            return
        self.lost = ConnectionLost(why)
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        while self._owed:
            reply = self._owed.popleft()
            if not reply.done():
                reply.set_exception(ConnectionLost(why))
        if self._on_push is not None:
            self._on_push(self.lost)

    # -- for the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._gathers = type(transport).__module__.partition(".")[0] == "uvloop"
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                self._take(reply)
        except _NONSENSE as error:
            self.abort(f"no Redis at the other end: {error or type(error).__name__}")

    def _take(self, reply: Any) -> None:
        if self._on_push is not None:
            self._on_push(reply)
        elif not self._owed:
            self.abort("no Redis at the other end: it answers what was not asked")
        elif not (owed := self._owed.popleft()).done():  # its caller may have been cancelled
            owed.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(str(error) if error else "the server closed the connection")
        self._ended.set()


class Topology(Protocol):
    """Which connection leads to the server that owns a slot: see topology.py and cluster.py."""

    cluster: bool

    async def open(self, slot: int) -> Connection:
        """The connection for a slot. Raises `ConnectionLost`."""
        ...

    async def open_extra(self, on_push: Push) -> Connection:
        """A connection of its own, for subscriptions."""
        ...

    async def at(self, address: Address) -> Connection:
        """The connection to a node that another node named."""
        ...

    def moved(self, slot: int, address: Address | None) -> None:
        """The owner of a slot is another one now; None: not known which."""
        ...

    def close(self) -> list[Connection]:
        """End all connections; they are given back to be waited for."""
        ...


class CallPolicy(Struct, frozen=True):
    """How long a call is repeated, how many replicas must confirm it, and how long they may take, in seconds."""

    patience: float = 30.0
    wait_replicas: int = 0
    wait_for: float = 1.0


class _CallMemory:
    """The calls of this client to one shard: their numbers, and which of them the server may forget."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._numbers = itertools.count(1)
        self._seen: list[str] = []
        self._doubtful: list[list[str]] = [[], []]  # younger and older than a refresh
        self._refresh_at = 0.0

    def next_call(self, now: float) -> tuple[str, str]:
        """A number, and the list of those to forget, now and then; a '*' tells the server that we live on."""
        number, mark = str(next(self._numbers)), ""
        if now >= self._refresh_at:
            self._refresh_at, mark = now + _REFRESH, "*"
            self._seen += self._doubtful.pop()
            self._doubtful.insert(0, [])
        elif len(self._seen) < _FORGET:
            return number, ""
        seen, self._seen = self._seen, []
        return number, mark + " ".join(seen)

    def answered(self, number: str, tries: int) -> None:
        if tries == 1:
            self._seen.append(number)
        else:  # sent twice, so it may still be on its way a second time: to be forgotten later
            self._doubtful[0].append(number)


class Request(Struct):
    """A command with all that it takes to send it, and to send it again. `at_once`: see `Connection.send`."""

    slot: int
    command: tuple[Argument, ...]
    script: Script | None = None
    writes: bool = False
    number: str = ""
    memory: _CallMemory | None = None
    at_once: bool = False

    def answered(self, tries: int) -> None:
        """Its answer has arrived, and need not be remembered any more."""
        if self.memory is not None:
            self.memory.answered(self.number, tries)


class Client:
    def __init__(self, topology: Topology, clock: Clock | None, policy: CallPolicy) -> None:
        self.topology = topology
        self.closed = False
        self._name = secrets.token_hex(5)
        self._clock = clock
        self._policy = policy
        self.patience = policy.patience
        self.outages = OutageLog("Redis")
        self._memories: dict[str, _CallMemory] = {}
        self._names = itertools.count(1)
        self._connections: dict[int, Connection] = {}  # by slot, as long as they are good

    def new_name(self) -> str:
        """A name that is used once: for batches, and for runs of jobs."""
        return f"{self._name}.{next(self._names)}"

    def open_connections(self) -> list[Connection]:
        """To the servers that calls go to, each once."""
        return [each for each in dict.fromkeys(self._connections.values()) if each.lost is None]

    def once(self, script: Script, shard: Shard, keys: Sequence[str], *args: Argument) -> Coroutine[Any, Any, Any]:
        """Run a script whose changes must happen once. Its first key is the memory of our calls."""
        memory = self._memories.get(shard.root)
        if memory is None:
            memory = self._memories[shard.root] = _CallMemory(f"{shard.root}:calls:{self._name}")
        number, forget = memory.next_call(asyncio.get_running_loop().time())
        request = self._prepare(script, shard, (memory.key, *keys), number, forget, args)
        request.number, request.memory, request.writes = number, memory, True
        request.at_once = script.name == "enqueue"  # nothing goes with it; a worker settles and takes together
        return self._perform(request)

    def once_for(
        self, mark: str, script: Script, shard: Shard, keys: Sequence[str], *args: Argument
    ) -> Coroutine[Any, Any, Any]:
        """The same, whichever clients run it: the memory is `mark`, which lives for an hour."""
        request = self._prepare(script, shard, (mark, *keys), "1", "*", args)
        request.writes = True
        return self._perform(request)

    def run(
        self, script: Script, shard: Shard, keys: Sequence[str], *args: Argument, writes: bool = False
    ) -> Coroutine[Any, Any, Any]:
        """Run a script that may run twice."""
        request = self._prepare(script, shard, keys, "", "", args)
        request.writes = writes
        return self._perform(request)

    async def command(self, slot: int, *command: Argument) -> Any:
        """A plain command that may run twice."""
        return await self._perform(Request(slot, command))

    def _prepare(
        self, script: Script, shard: Shard, keys: Sequence[str], number: str, forget: str, args: Sequence[Argument]
    ) -> Request:
        # Production sends no time: the server's clock decides. A test's clock takes its place, here and nowhere else.
        now = "" if self._clock is None else self._clock.now()
        command = ("EVALSHA", script.sha, len(keys), *keys, now, number, forget, shard.width, *args)
        return Request(shard.slot, command, script)

    async def _perform(self, request: Request) -> Any:
        """Send it, again and again if need be."""
        tries, until, backoff, unsure = 0, 0.0, None, False
        while True:
            if self.closed:
                raise _closed()
            tries += 1
            connection = self._connections.get(request.slot)
            try:
                if connection is None or connection.lost is not None:
                    connection = None
                    connection = self._connections[request.slot] = await self.topology.open(request.slot)
                reply = await self._send(connection, request)
                request.answered(tries)
                return reply
            except asyncio.CancelledError:
                request.answered(tries)  # it will not be sent again
                raise
            except (TryAgain, ConnectionLost) as error:
                now = asyncio.get_running_loop().time()
                if backoff is None:
                    patience = patience_of(self._policy.patience)
                    until, backoff = now + patience, Backoff()
                if self.closed:
                    raise _closed() from error
                # An error reply says that nothing was done; a connection that is lost after the send says nothing.
                unsure |= connection is not None and (not isinstance(error, TryAgain) or error.done)
                if now >= until:
                    doubt = ", but whether it took effect is not known" if unsure else ": nothing was changed"
                    raise StorageUnavailable(
                        f"Redis did not carry it out within {patience:g} s ({error}); look at the server. The call "
                        f"may be repeated{doubt}",
                        unsure=unsure and request.writes,
                    ) from error
                self.outages.note(until - patience, error)
                if not self._follow(request.slot, error):
                    await backoff.nap(until - now)

    def _follow(self, slot: int, error: TryAgain | ConnectionLost) -> bool:
        """A slot that has moved is asked for anew; whether its new place is known."""
        if not isinstance(error, TryAgain) or not error.moved:
            return False
        if error.address is not None and not self.topology.cluster:
            raise StorageError("this server is a node of a Redis Cluster; open it with redis+cluster://") from error
        self._connections.pop(slot, None)
        self.topology.moved(slot, error.address)
        return error.address is not None

    async def _send(self, connection: Connection, request: Request) -> Any:
        command, asking = request.command, False
        confirms = request.writes and self._policy.wait_replicas > 0
        sent = connection.send(*command, at_once=request.at_once)
        confirmed = self._ask_replicas(connection) if confirms else None
        reply = await sent
        while isinstance(reply, hiredis.ReplyError):
            text = str(reply)
            if text.startswith("NOSCRIPT") and request.script is not None:
                # A restarted server, a new master or SCRIPT FLUSH: EVAL runs it and makes the server remember it.
                command = ("EVAL", request.script.source, *command[2:])
            elif text.startswith("ASK "):
                connection, asking = await self.topology.at(address_in(text)), True
            else:
                raise_for(text, reply)
            if asking:
                _ignore(connection.send("ASKING"))
            sent = connection.send(*command)
            confirmed = self._ask_replicas(connection) if confirms else None
            reply = await sent
        if confirmed is not None:
            self._check_replicas(await confirmed)
        return reply

    def _ask_replicas(self, connection: Connection) -> asyncio.Future[Any]:
        policy = self._policy
        return _ignore(connection.send("WAIT", policy.wait_replicas, round(policy.wait_for * 1000)))

    def _check_replicas(self, reply: Any) -> None:
        if isinstance(reply, hiredis.ReplyError):
            raise TryAgain(str(reply))
        if reply < self._policy.wait_replicas:
            # Sent again the call only waits again, or is carried out by the new master if it never arrived there.
            why = f"stored, but only {reply} of {self._policy.wait_replicas} replicas confirmed it in time"
            raise TryAgain(why, done=True)


def _closed() -> StorageClosed:
    return StorageClosed("this storage was closed; open a new one")


def _ignore(reply: asyncio.Future[Any]) -> asyncio.Future[Any]:
    """A reply that may never be asked for: its error is no news."""
    reply.add_done_callback(lambda future: future.cancelled() or future.exception())
    return reply
