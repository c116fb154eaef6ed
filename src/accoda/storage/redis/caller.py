"""Runs scripts and repeats them where that is safe: the one place that knows what an error of Redis means.

What is repeated, and why it may be:

- `enqueue`, `line_up`, `settle`, `finish`, `drop`, `remove`, `revive`, `start_now`, `purge`, `write`, `post` carry a
  call number, and the script remembers the answer under it until the caller has seen it (lua/parts/once.lua): sent
  again, it does nothing.
- `take` names its batch itself: sent again, it gives the same batch. `deliver` leaves a mark for the run.
- `extend`, `rerank`, `pause`, `resume` set things to what they are already. The rest only reads.

So every verb is repeated after a lost connection, a fail-over or a moved slot, until `patience` is over. Then the
caller gets `StorageUnavailable`. A master that fails over before its replica had the last writes forgets them with
their answers; `wait_replicas` makes a call wait until they have arrived.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import secrets
from collections.abc import Coroutine, Sequence
from typing import Any, NoReturn

import hiredis
from msgspec import Struct

from accoda.clock import Clock
from accoda.errors import StorageClosed, StorageError, StorageFull, StorageUnavailable
from accoda.storage.backoff import Backoff
from accoda.storage.patience import patience_of
from accoda.storage.redis.connection import Argument, Connection, ConnectionLost
from accoda.storage.redis.keys import Shard
from accoda.storage.redis.scripts import Script
from accoda.storage.redis.topology import Topology
from accoda.storage.redis.types import WrongType, expected, explain

_CROWDED = "ERR max number of clients reached"  # sent to a new connection, which the server then closes
log = logging.getLogger("accoda.storage.redis")
_LATER = ("TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "BUSY ", "NOREPLICAS", "UNBLOCKED", _CROWDED)
_TROUBLED_FOR = 6.0  # seconds; longer than a call that is being repeated is silent: a connect and a nap
_AT_ONCE = frozenset({"enqueue", "line_up"})  # a producer has nothing else to say; a worker settles and takes together
_FORGET = 16  # calls that are forgotten together: each time is one more command for the server
_REFRESH = 60.0  # seconds after which the memory of a client's calls is told to live on; it does for an hour


class Manner(Struct, frozen=True):
    """How calls behave. `wait_for` is how long replicas may take to confirm, in seconds."""

    patience: float = 30.0
    wait_replicas: int = 0
    wait_for: float = 1.0


class _Retry(Exception):
    """The command was not carried out, or may be sent again; `soon` without a nap. `done`: it was carried out here."""

    def __init__(self, why: str, soon: bool = False, done: bool = False) -> None:
        super().__init__(why)
        self.soon = soon
        self.done = done


class _Memory:
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


class Call(Struct):
    """A command with all that it takes to send it, and to send it again.

    `at_once`: see `Connection.send`.
    """

    slot: int
    command: tuple[Argument, ...]
    script: Script | None = None
    writes: bool = False
    number: str = ""
    memory: _Memory | None = None
    at_once: bool = False

    def answered(self, tries: int) -> None:
        """Its answer has arrived, and need not be remembered any more."""
        if self.memory is not None:
            self.memory.answered(self.number, tries)


class Caller:
    def __init__(self, topology: Topology, clock: Clock | None, manner: Manner) -> None:
        self.topology = topology
        self.client = secrets.token_hex(5)
        self._clock = clock
        self._manner = manner
        self._memories: dict[str, _Memory] = {}
        self._batches = itertools.count(1)
        self._warned: set[str] = set()
        self._trouble_at = -math.inf
        self.closed = False

    def new_name(self) -> str:
        """A name that nobody else uses: for batches, and for runs of jobs."""
        return f"{self.client}.{next(self._batches)}"

    def once(self, script: Script, shard: Shard, keys: Sequence[str], *args: Argument) -> Coroutine[Any, Any, Any]:
        """Run a script whose changes must happen once. Its first key is the memory of our calls."""
        memory = self._memories.get(shard.root)
        if memory is None:
            memory = self._memories[shard.root] = _Memory(f"{shard.root}:calls:{self.client}")
        number, forget = memory.next_call(asyncio.get_running_loop().time())
        call = self._prepare(script, shard, (memory.key, *keys), (number, forget), args, True)
        call.number, call.memory = number, memory
        call.at_once = script.name in _AT_ONCE
        return self._carry_out(call)

    def run(
        self, script: Script, shard: Shard, keys: Sequence[str], *args: Argument, writes: bool = False
    ) -> Coroutine[Any, Any, Any]:
        """Run a script that may run twice."""
        return self._carry_out(self._prepare(script, shard, keys, ("", ""), args, writes))

    async def command(self, slot: int, *command: Argument) -> Any:
        """A plain command that may run twice."""
        return await self._carry_out(Call(slot, command))

    def _prepare(
        self,
        script: Script,
        shard: Shard,
        keys: Sequence[str],
        number: tuple[str, str],
        args: Sequence[Argument],
        writes: bool,
    ) -> Call:
        # Production sends no time: the server's clock decides. A test's clock takes its place, here and nowhere else.
        now = "" if self._clock is None else self._clock.now()
        command = ("EVALSHA", script.sha, len(keys), *keys, now, *number, shard.width, *args)
        return Call(shard.slot, command, script, writes)

    async def _carry_out(self, call: Call) -> Any:
        """Send it, again and again if need be."""
        tries, until, backoff, unsure = 0, 0.0, None, False
        while True:
            if self.closed:
                raise _closed()
            tries += 1
            connection = None
            try:
                connection = self.topology.ready(call.slot) or await self.topology.open(call.slot)
                reply = await self._send(connection, call)
                call.answered(tries)
                return reply
            except asyncio.CancelledError:
                call.answered(tries)  # nobody will send it again
                raise
            except WrongType as error:
                raise await self.name_wrong_type(call.slot, expected(call.command)) from error
            except (_Retry, ConnectionLost) as error:
                now = self._trouble_at = asyncio.get_running_loop().time()
                if backoff is None:
                    patience = patience_of(self._manner.patience)
                    until, backoff = now + patience, Backoff()
                if self.closed:
                    raise _closed() from error
                # An error reply says that nothing was done; a connection that is lost after the send says nothing.
                unsure |= connection is not None and (not isinstance(error, _Retry) or error.done)
                if now >= until:
                    doubt = ", but whether it took effect is not known" if unsure else ": nothing was changed"
                    raise StorageUnavailable(
                        f"Redis did not carry it out within {patience:g} s ({error}); look at the server. The call "
                        f"may be repeated{doubt}",
                        unsure=unsure and call.writes,
                    ) from error
                if not (isinstance(error, _Retry) and error.soon):
                    await backoff.nap(until - now)

    async def name_wrong_type(self, slot: int, wanted: dict[str, str]) -> WrongType:
        """The error that says which of these keys is of another type."""
        return await explain(wanted, lambda *command: self._carry_out(Call(slot, command)))

    async def warn_of_wrong_types(self, shard: Shard, bases: Sequence[str]) -> None:
        """Queues that a call for several passed over, because a key of theirs is of another type: told once each."""
        for base in bases:
            if base not in self._warned:
                self._warned.add(base)
                log.warning("%s", await self.name_wrong_type(shard.slot, expected(("EVAL", "", 1, base))))

    def in_trouble(self) -> bool:
        """Whether the server is away, or was a moment ago: some call had to be repeated."""
        return asyncio.get_running_loop().time() - self._trouble_at < _TROUBLED_FOR

    async def _send(self, connection: Connection, call: Call) -> Any:
        command, asking = call.command, False
        confirms = call.writes and self._manner.wait_replicas > 0
        sent = connection.send(*command, at_once=call.at_once)
        confirmed = self._ask_replicas(connection) if confirms else None
        reply = await sent
        while isinstance(reply, hiredis.ReplyError):
            text = str(reply)
            if text.startswith("NOSCRIPT") and call.script is not None:
                # A restarted server, a new master or SCRIPT FLUSH: EVAL runs it and makes the server remember it.
                command = ("EVAL", call.script.source, *command[2:])
            elif text.startswith("ASK "):
                connection, asking = await self.topology.at(_address(text)), True
            else:
                self._judge(text, call.slot, reply)
            if asking:
                _ignore(connection.send("ASKING"))
            sent = connection.send(*command)
            confirmed = self._ask_replicas(connection) if confirms else None
            reply = await sent
        if confirmed is not None:
            self._check_replicas(await confirmed)
        return reply

    def _ask_replicas(self, connection: Connection) -> asyncio.Future[Any]:
        manner = self._manner
        return _ignore(connection.send("WAIT", manner.wait_replicas, round(manner.wait_for * 1000)))

    def _check_replicas(self, reply: Any) -> None:
        if isinstance(reply, hiredis.ReplyError):
            raise _Retry(str(reply))
        if reply < self._manner.wait_replicas:
            # Sent again the call only waits again, or is carried out by the new master if it never arrived there.
            why = f"stored, but only {reply} of {self._manner.wait_replicas} replicas confirmed it in time"
            raise _Retry(why, done=True)

    def _judge(self, text: str, slot: int, reply: Exception) -> NoReturn:
        """Raise what an error reply means. Redis refuses a script at its first write or not at all: nothing changed."""
        if text.startswith("MOVED "):
            self.topology.moved(slot, _address(text))
            if not self.topology.cluster:
                raise StorageError("this server is a node of a Redis Cluster; open it with redis+cluster://") from reply
            raise _Retry(text, soon=True)
        if text.startswith("READONLY") or "-READONLY" in text:
            self.topology.moved(slot, None)
            raise _Retry(text)
        if text.startswith(_LATER):
            if text.startswith("CLUSTERDOWN"):
                self.topology.moved(slot, None)
            raise _Retry(text)
        if "OOM command not allowed" in text:
            raise StorageFull(
                "the memory of Redis is full (maxmemory): nothing was changed. Raise maxmemory, let the workers catch "
                "up (jobs can still be taken and finished), or purge dead and done jobs; then try again"
            ) from reply
        if text.startswith("MISCONF"):
            raise StorageFull(
                f"Redis cannot write to its disk and refuses to change anything ({text}); free space there or mend the "
                "disk, then try again: it goes on by itself. Nothing was changed"
            ) from reply
        if text.startswith(("NOAUTH", "WRONGPASS", "NOPERM")):
            raise StorageError(
                f"Redis refused the command ({text}); check the user's rights, see docs/redis.md"
            ) from reply
        if "WRONGTYPE" in text:
            raise WrongType(text) from reply
        raise StorageError(f"Redis: {text}") from reply


def _closed() -> StorageClosed:
    return StorageClosed("this storage was closed; open a new one")


def _ignore(reply: asyncio.Future[Any]) -> asyncio.Future[Any]:
    """A reply that perhaps nobody asks for: its error is no news."""
    reply.add_done_callback(lambda future: future.cancelled() or future.exception())
    return reply


def _address(text: str) -> tuple[str, int]:
    """The address in "MOVED 3999 127.0.0.1:6381"."""
    host, _, port = text.split()[2].rpartition(":")
    return host, int(port)
