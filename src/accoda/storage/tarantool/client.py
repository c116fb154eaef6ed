"""The client: IPROTO, the server's binary protocol, over one connection, and calls that survive the connection.

A packet is its length, a header (a map with the kind or error code, and the number that pairs a request with its
answer) and a body (a map). Everything is msgpack. Many calls may be under way on a connection at once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from struct import Struct
from typing import Any, NamedTuple, cast

from msgspec import MsgspecError, Raw
from msgspec.msgpack import Decoder, Encoder, decode

from accoda.clock import Clock
from accoda.errors import StorageUnavailable
from accoda.storage.common.loop_affinity import LoopAffinity
from accoda.storage.common.reconnecting import Backoff, patience_of
from accoda.storage.tarantool.address import GREETING_SIZE, GUEST, Address
from accoda.storage.tarantool.errors import STARTING, ConnectionLost, ServerError, Undecodable, translate, unreachable

CALL, AUTH, EVAL, PING = 0x0A, 0x07, 0x08, 0x40
PREFIX_SIZE = 5  # the length, always written as a 32-bit number
_PREFIX = 0xCE
_LONGEST = 1 << 30  # bytes of a packet: more than any answer has. To wait for four gigabytes would be to wait for ever
_TUPLE, _FUNCTION, _USER, _EXPRESSION = 0x21, 0x22, 0x23, 0x27
_CODE, _SYNC, _DATA, _ERROR = 0x00, 0x01, 0x30, 0x31
_IS_ERROR = 0x8000
_PLAIN_BODY = bytes((0x81, _DATA))  # a map with one entry, the data
_MOST_SYNC = 0xFFFF_FFFF
_UINT_SIZES = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_HEADER_SIZES = {0xD9: 2, 0xC4: 2, 0xDA: 3, 0xC5: 3, 0xDB: 5, 0xC6: 5}  # of strings and binaries

PATIENCE = 10.0  # seconds that a call waits for the server to come back
HANDSHAKE_PATIENCE = 5.0
SILENCE = 10.0  # seconds that the server may be silent while it owes an answer, though it is asked for a sign of life
CALL_PATIENCE = 60.0  # seconds for one call: a server that lives may be unable to write; longer than any long poll
_START_PATIENCE = 2.0  # seconds that a server which starts may refuse to write
_START_PAUSE = 0.02

_head = Struct(">BIBBBBBI")  # the length, then the header: a map of two, the kind, and the number
_length = Struct(">xI")
_encode = Encoder().encode
_fields = Decoder(dict[int, Raw])
_nothing: Decoder[Any] = Decoder(list[Any])
_functions: dict[str, bytes] = {}


def packet(kind: int, sync: int, body: bytes) -> bytes:
    return _head.pack(_PREFIX, _head.size - PREFIX_SIZE + len(body), 0x82, _CODE, kind, _SYNC, 0xCE, sync) + body


def call_body(function: str, args: Sequence[Any]) -> bytes:
    """Run a stored function."""
    name = _functions.get(function)
    if name is None:
        name = _functions[function] = bytes((0x82, _FUNCTION)) + _encode(function) + bytes((_TUPLE,))
    return name + _encode(args)


def eval_body(script: str, args: Sequence[Any]) -> bytes:
    """Run a script that is sent along."""
    return _encode({_EXPRESSION: script, _TUPLE: args})


def auth_body(address: Address, greeting: bytes) -> bytes:
    return _encode({_USER: address.user, _TUPLE: ("chap-sha1", address.proof_for(greeting))})


def length_at(data: bytes, position: int) -> int:
    """How long the packet is whose prefix begins there."""
    length: int = _length.unpack_from(data, position)[0]
    return length


def header_of(packet: memoryview) -> tuple[int, int, int]:
    """The code, the number, and where the body begins."""
    code = sync = 0
    position = 1
    for _ in range(packet[0] & 0x0F):
        key, first = packet[position], packet[position + 1]
        position += 2
        if first >= 0x80:
            end = position + _UINT_SIZES[first]
            first, position = int.from_bytes(packet[position:end]), end
        if key == _CODE:
            code = first
        elif key == _SYNC:
            sync = first
    return code, sync, position


def answer_of(code: int, body: memoryview, decoder: Decoder[Any]) -> Any:
    """What the function gave back. Raises `ServerError` for an error answer."""
    if code & _IS_ERROR:
        raise ServerError(code & ~_IS_ERROR, decode(_fields.decode(body)[_ERROR], type=str))
    data = body[2:] if body[:2] == _PLAIN_BODY else _fields.decode(body).get(_DATA) if body else None
    if data is None:
        return None
    try:
        return decoder.decode(data)[0]
    except (MsgspecError, UnicodeDecodeError) as error:
        raise Undecodable(bytes(data)) from error


def bytes_of(raw: Raw) -> bytes:
    """The content of a msgpack string or binary. Raises ValueError where it is something else."""
    whole = bytes(raw)
    first = whole[0]
    if 0xA0 <= first < 0xC0:  # a short string: its length is in this byte
        return whole[1:]
    size = _HEADER_SIZES.get(first)
    if size is None:
        raise ValueError(f"neither text nor bytes, but a msgpack value that begins with {first:#x}")
    return whole[size:]


class _Pending(NamedTuple):
    """A request whose answer has not come."""

    answer: asyncio.Future[Any]
    since: float
    decoder: Decoder[Any]


class Connection(asyncio.Protocol):
    def __init__(self, address: Address) -> None:
        self.address = address
        self.lost = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._greeting: asyncio.Future[bytes] = self._loop.create_future()
        self._pending: dict[int, _Pending] = {}
        self._pieces: list[bytes] = []
        self._missing = GREETING_SIZE
        self._sync = 0
        self._heard_at = 0.0
        self._pinged = False
        self._watch: asyncio.TimerHandle | None = None

    def call(self, verb: str, args: Sequence[Any], decoder: Decoder[Any]) -> asyncio.Future[Any]:
        """Run a verb of the application. The request is on its way when this returns."""
        return self._send(CALL, call_body("accoda_" + verb, args), decoder)

    def eval(self, script: str, args: Sequence[Any], decoder: Decoder[Any] = _nothing) -> asyncio.Future[Any]:
        return self._send(EVAL, eval_body(script, args), decoder)

    async def log_in(self) -> None:
        async with asyncio.timeout(HANDSHAKE_PATIENCE):
            greeting = await self._greeting
            if self.address.user != GUEST or self.address.password:
                await self._send(AUTH, auth_body(self.address, greeting), _nothing)

    def close(self) -> None:
        self._give_up("closed")

    def _send(self, kind: int, body: bytes, decoder: Decoder[Any]) -> asyncio.Future[Any]:
        answer = self._loop.create_future()
        if self.lost or self._transport is None:
            answer.set_exception(ConnectionLost("not connected"))
            return answer
        now = self._loop.time()
        if not self._pending:
            self._heard_at = now
            if self._watch is None:
                self._watch = self._loop.call_later(SILENCE / 2, self._look_for_silence)
        self._sync = sync = 1 if self._sync == _MOST_SYNC else self._sync + 1
        self._pending[sync] = _Pending(answer, now, decoder)
        self._transport.write(packet(kind, sync, body))
        return answer

    def _look_for_silence(self) -> None:
        """One timer for the connection, not one for each call. It runs while an answer is owed."""
        self._watch = None
        if self.lost or not self._pending:
            return
        now = self._loop.time()
        oldest = next(iter(self._pending.values())).since  # a dict keeps the order in which they were sent
        if self._pinged:  # half a silence ago; what arrived while this loop was busy has been read before this runs
            self._give_up(f"no answer for {SILENCE:g} s")
        elif now - oldest >= CALL_PATIENCE:
            self._give_up(f"a call had no answer for {CALL_PATIENCE:g} s")
        else:
            if now - self._heard_at >= SILENCE / 2:
                # A long poll may keep the server silent for longer. So ask: a sign of life is an answer, too.
                self._pinged = True
                pong = self._send(PING, _encode({}), _nothing)
                pong.add_done_callback(lambda future: future.cancelled() or future.exception())
            self._watch = self._loop.call_later(SILENCE / 2, self._look_for_silence)

    def _give_up(self, why: str) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end(ConnectionLost(why))

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or ConnectionLost("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._heard_at, self._pinged = self._loop.time(), False
        # A large answer comes in many pieces: they are joined once, when the last one is here.
        self._pieces.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        try:
            position = self._read(data)
        except (LookupError, ValueError) as error:  # where the next packet begins cannot be known
            self._give_up(f"no Tarantool at the other end: {error!r}")
            return
        self._pieces.clear()
        if position < len(data):
            self._pieces.append(data[position:])
            self._missing -= len(data) - position

    def _read(self, data: bytes) -> int:
        """Handle all whole packets; where the rest begins. `_missing` then counts from there."""
        position, size = 0, len(data)
        if not self._greeting.done():
            position = GREETING_SIZE  # whole, because nothing less was missing
            if not data.startswith(b"Tarantool"):
                raise ValueError("no greeting")
            self._greeting.set_result(data[:position])
        view = memoryview(data)
        while size - position >= PREFIX_SIZE:
            end = position + PREFIX_SIZE + length_at(data, position)
            if data[position] != _PREFIX or end - position > _LONGEST:
                raise ValueError("a packet of an impossible length")
            if end > size:
                self._missing = end - position
                return position
            self._answer(view[position + PREFIX_SIZE : end])
            position = end
        self._missing = PREFIX_SIZE
        return position

    def _answer(self, packet: memoryview) -> None:
        code, sync, body = header_of(packet)
        pending = self._pending.pop(sync, None)
        if pending is None or pending.answer.cancelled():
            return
        try:
            pending.answer.set_result(answer_of(code, packet[body:], pending.decoder))
        except Exception as error:  # an error answer, or one that cannot be understood: it belongs to the caller
            pending.answer.set_exception(error)

    def _end(self, reason: Exception) -> None:
        if self.lost:
            return
        self.lost = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        waiting = [self._greeting, *(pending.answer for pending in self._pending.values())]
        self._pending.clear()
        for future in waiting:
            if not future.done():
                error = ConnectionLost(str(reason) or type(reason).__name__)
                error.__cause__ = reason
                future.set_exception(error)
        if not self._greeting.cancelled():
            self._greeting.exception()  # where nothing awaits it, asyncio need not complain


class Client:
    """One connection after the other. Used in the event loop in which it was made, except `close`."""

    def __init__(
        self, connection: Connection, reopen: Callable[[], Awaitable[Connection]], clock: Clock | None
    ) -> None:
        self.address = connection.address
        self.home = LoopAffinity(f"the storage {self.address}")
        self._connection = connection
        self._connecting: asyncio.Task[Connection] | None = None
        self._reopen = reopen
        self._clock = clock
        self._name = secrets.token_hex(8)  # for receipts
        self._number = 0
        self._slots = 0
        self._free_slots: list[int] = []

    async def once(self, verb: str, args: Sequence[Any], decoder: Decoder[Any]) -> Any:
        """`call` for a verb that must be carried out at most once: sent again, it only gives the first answer again."""
        # A slot is free when its call is over. One that was cancelled may still be carried out, but no later than any
        # call that follows it over the same connection; over another one, the server refuses it by its lower number.
        if self._free_slots:
            slot = self._free_slots.pop()
        else:
            self._slots = slot = self._slots + 1
        self._number += 1
        try:
            return await self.call(verb, ((self._name, slot, self._number), *args), decoder)
        finally:
            self._free_slots.append(slot)

    async def call(self, verb: str, args: Sequence[Any], decoder: Decoder[Any]) -> Any:
        """Run a verb of the application and give its answer.

        A call whose answer was lost with the connection may have been carried out. It is sent again over the next
        connection: so this is for verbs that do no harm when they are carried out twice.
        """
        first_lost = first_refused = 0.0
        backoff: Backoff | None = None
        while True:
            connection = self._connection
            if connection.lost:
                connection = await self._connected_again(verb, sent=bool(first_lost))
            try:
                return await connection.call(verb, (self._moment(), *args), decoder)
            except ServerError as error:
                # A server that starts answers for a moment as if it were read-only. Such a call changed nothing.
                now = self.home.loop.time()
                first_refused = first_refused or now
                if error.code not in STARTING or now - first_refused > _START_PATIENCE:
                    raise translate(error, self.address) from error
                await asyncio.sleep(_START_PAUSE)
            except ConnectionLost as error:
                # Sent again: at once after the first loss, then after pauses. A server that takes calls but never
                # answers must not hold one for ever.
                self.home.check()
                now = self.home.loop.time()
                if first_lost and now - first_lost > patience_of(PATIENCE):
                    raise StorageUnavailable(
                        f"{self.address} takes calls but does not answer ({error}); look at the server; {_doubt(verb)}",
                        unsure=True,
                    ) from error
                if backoff is not None:
                    await backoff.nap()
                first_lost, backoff = first_lost or now, backoff or Backoff()

    def send(self, verb: str, args: Sequence[Any], decoder: Decoder[Any]) -> asyncio.Future[Any]:
        """Put a call on its way before anything else is sent, on the connection as it is."""
        return self._connection.call(verb, (self._moment(), *args), decoder)

    def _moment(self) -> int | None:
        """What the server shall take for now: None, its own clock, but in tests that move time by hand."""
        return None if self._clock is None else self._clock.now()

    async def _connected_again(self, verb: str, *, sent: bool) -> Connection:
        try:
            return await self.connected()
        except StorageUnavailable as error:
            if not sent:
                raise
            raise StorageUnavailable(f"{error}; {_doubt(verb)}", unsure=True) from error

    async def connected(self) -> Connection:
        """The connection, made again if it was lost. All callers share one attempt."""
        self.home.check()
        if not self._connection.lost:
            return self._connection
        if self._connecting is None:
            self._connecting = self.home.loop.create_task(self._reconnect())
        connecting = self._connecting
        patience = patience_of(PATIENCE + 1.0)  # longer than the attempt itself, unless the caller has less time
        try:
            async with asyncio.timeout(patience):
                return await asyncio.shield(connecting)
        except TimeoutError as error:
            raise unreachable(self.address, TimeoutError(f"not within {patience:g} s")) from error
        except asyncio.CancelledError:
            if connecting.cancelled():  # by `close`, not our caller
                self.home.check()
            raise

    async def _reconnect(self) -> Connection:
        try:
            self._connection = await self._reopen()
            return self._connection
        finally:
            self._connecting = None

    async def close(self) -> None:
        if not self.home.closed and self.home.reachable:
            await self.home.run(self._close())

    async def _close(self) -> None:
        self.home.closed = True
        self._connection.close()
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        await asyncio.sleep(0)  # lets the transport close its socket


def _doubt(verb: str) -> str:
    return f"the {verb} that was under way may or may not have been done"
