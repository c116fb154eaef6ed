"""A small queue on each engine that does not change when Accoda does.

Accoda's rate divided by a yardstick's, in the same run, is a figure that can be compared with that of another day and,
roughly, of another machine. The bare engines of `benchmarks.raw` call Accoda's own scripts and functions, so they would
become slower together with it; these have their own. Each is fenced: a take leases, a settle removes only what is so.
"""

from __future__ import annotations

import socket
from typing import Any, Self

import hiredis

from benchmarks.raw.shape import PAYLOAD, Leases
from benchmarks.raw.tarantool import ANY, BareTarantool

_ENQUEUE = """
local id, jobs = redis.call('INCRBY', KEYS[1] .. ':ids', #ARGV) - #ARGV, {}
for n = 1, #ARGV do
  jobs[2 * n - 1], jobs[2 * n] = n % 4, string.format('%016d', id + n) .. ARGV[n]
end
redis.call('ZADD', KEYS[1] .. ':ready', unpack(jobs))
redis.call('HINCRBY', KEYS[1] .. ':meta', 'ready', #ARGV)
"""
_TAKE = """
local time = redis.call('TIME')
local till = time[1] * 1000 + 60000
local jobs, held = redis.call('ZRANGE', KEYS[1] .. ':ready', 0, ARGV[1] - 1, 'WITHSCORES'), {}
for n = 1, #jobs, 2 do
  held[n], held[n + 1] = string.sub(jobs[n], 1, 16), till .. ',' .. jobs[n + 1] .. ',' .. jobs[n]
end
redis.call('HSET', KEYS[1] .. ':taken', unpack(held))
redis.call('ZREMRANGEBYRANK', KEYS[1] .. ':ready', 0, #jobs / 2 - 1)
redis.call('HINCRBY', KEYS[1] .. ':meta', 'ready', -#jobs / 2)
return jobs
"""
_SETTLE = """
local time = redis.call('TIME')
local held, gone = redis.call('HMGET', KEYS[1] .. ':taken', unpack(ARGV)), {}
for n = 1, #ARGV do
  if held[n] and tonumber(string.match(held[n], '^%d+')) > time[1] * 1000 then
    gone[#gone + 1] = ARGV[n]
  end
end
redis.call('HINCRBY', KEYS[1] .. ':meta', 'done', #gone)
return redis.call('HDEL', KEYS[1] .. ':taken', unpack(gone))
"""


class RedisYardstick:
    """Three scripts over a blocking socket."""

    def __init__(self, port: int, queue: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        self._queue = f"yardstick:{queue}"
        self._shas = {text: self._ask("SCRIPT", "LOAD", text) for text in (_ENQUEUE, _TAKE, _SETTLE)}

    async def enqueue(self, count: int) -> None:
        self._run(_ENQUEUE, *[PAYLOAD] * count)

    async def take(self, count: int) -> Leases:
        return [(record[:16], 0) for record in self._run(_TAKE, count)[::2]]

    async def settle(self, leases: Leases) -> None:
        assert self._run(_SETTLE, *(id for id, _ in leases)) == len(leases)

    async def close(self) -> None:
        self._socket.close()

    def _run(self, text: str, *args: Any) -> Any:
        return self._ask("EVALSHA", self._shas[text], 1, self._queue, *args)

    def _ask(self, *command: Any) -> Any:
        self._socket.sendall(hiredis.pack_command(command))
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(1 << 20))
        if isinstance(reply, Exception):
            raise reply
        return reply


_TABLE = """
CREATE TABLE {t} (
  id bigserial PRIMARY KEY, rank float8, data bytea, attempts int DEFAULT 0, until timestamptz, cost bigint DEFAULT 0
);
CREATE INDEX ON {t} (rank, id) WHERE until IS NULL;
CREATE INDEX ON {t} (until) WHERE until IS NOT NULL
"""
_INSERT = "INSERT INTO {t} (rank, data) SELECT * FROM unnest($1::float8[], $2::bytea[]) RETURNING id"
_LEASE = """
WITH first AS (SELECT id FROM {t} WHERE until IS NULL ORDER BY rank, id LIMIT $1 FOR UPDATE SKIP LOCKED)
UPDATE {t} t SET until = now() + interval '60 s' FROM first WHERE t.id = first.id
RETURNING t.id, t.attempts, t.data, t.rank, t.cost
"""
_DELETE = """
DELETE FROM {t} t USING unnest($1::bigint[], $2::int[]) AS held (id, attempts)
WHERE t.id = held.id AND t.attempts = held.attempts AND t.until > now()
"""


class PostgresYardstick:
    """One table, a statement for each call, over asyncpg."""

    def __init__(self, connection: Any, table: str) -> None:
        self._connection = connection
        self._insert, self._lease, self._delete = (text.format(t=table) for text in (_INSERT, _LEASE, _DELETE))

    @classmethod
    async def open(cls, url: str, queue: str) -> Self:
        import asyncpg  # type: ignore[import-untyped]

        connection = await asyncpg.connect(url, server_settings={"jit": "off"})
        table = f'"yardstick {queue}"'
        await connection.execute(_TABLE.format(t=table))
        return cls(connection, table)

    async def enqueue(self, count: int) -> None:
        await self._connection.fetch(self._insert, [0.0] * count, [PAYLOAD] * count)

    async def take(self, count: int) -> Leases:
        return [(row[0], row[1]) for row in await self._connection.fetch(self._lease, count)]

    async def settle(self, leases: Leases) -> None:
        ids, attempts = [id for id, _ in leases], [number for _, number in leases]
        assert await self._connection.execute(self._delete, ids, attempts) == f"DELETE {len(leases)}"

    async def close(self) -> None:
        await self._connection.close()


_FUNCTIONS = """
local name = ...
local space = box.schema.space.create(name)
space:create_index('id', {sequence = true, parts = {1, 'unsigned'}})
space:create_index('line', {parts = {{2, 'unsigned'}, {3, 'number'}, {1, 'unsigned'}}})
local fiber = require('fiber')
local function together(work)
  box.begin()
  local answer = work()
  box.commit()
  return answer
end
rawset(_G, name .. '_enqueue', function(jobs)
  return together(function()
    for _, data in ipairs(jobs) do space:insert({nil, 0, 0, 0, data}) end
    return true
  end)
end)
rawset(_G, name .. '_take', function(count)
  return together(function()
    local jobs, till = space.index.line:select({0}, {limit = count}), fiber.time() + 60
    for n, job in ipairs(jobs) do jobs[n] = space:update(job[1], {{'=', 2, 1}, {'=', 3, till}}) end
    return jobs
  end)
end)
rawset(_G, name .. '_settle', function(ids)
  return together(function()
    local done, now = 0, fiber.time()
    for _, id in ipairs(ids) do
      local job = space:get(id)
      if job and job[2] == 1 and job[3] > now then
        space:delete(id)
        done = done + 1
      end
    end
    return done
  end)
end)
return true
"""


class TarantoolYardstick(BareTarantool):
    """Three functions over a blocking socket."""

    def __init__(self, url: str, queue: str) -> None:
        super().__init__(url)
        self._name = f"yardstick_{queue}".replace("-", "_")
        self.eval(_FUNCTIONS, (self._name,))

    async def enqueue(self, count: int) -> None:
        self.call(f"{self._name}_enqueue", ([PAYLOAD] * count,), ANY)

    async def take(self, count: int) -> Leases:
        return [(job[0], 0) for job in self.call(f"{self._name}_take", (count,), ANY)]

    async def settle(self, leases: Leases) -> None:
        assert self.call(f"{self._name}_settle", ([id for id, _ in leases],), ANY) == len(leases)
