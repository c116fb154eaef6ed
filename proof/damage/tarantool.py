"""Damages records of a Tarantool store, as far as the formats of its spaces allow it."""

from __future__ import annotations

from random import Random

from msgspec.msgpack import Decoder

from accoda.storage.tarantool.open import connect
from accoda.storage.tarantool.storage import TarantoolStorage
from proof.damage import prepare

# One change for each kind; what the server refuses leaves the job as it was.
_DAMAGE = r"""
jit.off(true, true) -- the compiler of 2.6 crashes the server over tables of such values
local ids, kinds, pick = ...
local decimal, jobs, damaged = require('decimal'), box.space.accoda_jobs, 0
local huge, nan = 1 / 0, 0 / 0
local big = {-1, 2 ^ 53, 18446744073709551615ULL, 9007199254740993ULL}
local wrong = {'text', 1, -1.5, true, {1, {a = 2}}, '\xff\xfe', 18446744073709551615ULL}
local no_text = {'\xff\xfe', 'abc\x80', '\xc3'}
local reals = {huge, -huge, 1.7e308, -1.7e308}
local function any(list, n) return list[n % #list + 1] end
local changes = {
    function(n) return {{'=', 'data', any(wrong, n)}} end,
    function(n) return {{'=', 'data', any(wrong, n)}, {'=', 'rank', any(reals, n)}} end,
    function(n) return {{'=', 'rank', any({huge, nan, -huge, decimal.new('2.5')}, n)}} end,
    function(n) return {{'=', 'sort', any(reals, n)}} end,
    function(n) return {{'=', 'keep_for', any({huge, nan, -1, 1e300, decimal.new('3')}, n)}} end,
    function(n) return {{'=', any({'tries', 'crashes'}, n), any(wrong, n + 1)}} end,
    function(n) return {{'=', any({'attempts', 'tries', 'crashes'}, n), any(big, n)}} end,
    function(n) return {{'=', 'waiters', any(big, n)}} end,
    function(n) return {{'=', any({'key', 'worker', 'reason'}, n), any(no_text, n)}} end,
    function(n) return {{'=', 'result', any(wrong, n)}} end,
    function(n) return {{'=', 'state', any({6, 7, 200}, n)}} end,
    function(n) return {{'=', 'queue', any({7777, 0, 99999999}, n)}} end,
    function(n) return {{'=', any({'created_at', 'start_time', 'prev_start_time', 'taken_at', 'ended_at', 'cost'}, n),
        any(big, n)}} end,
    function(n) return {{'!', -1, 'one more field'}} end,
}
for i, id in ipairs(ids) do
    local change = changes[kinds[i] % #changes + 1]
    if pcall(function() jobs:update(id, change(pick[i])) end) then
        damaged = damaged + 1
    end
    if pick[i] % 11 == 0 then
        pcall(box.space.accoda_waiters.insert, box.space.accoda_waiters, {id, pick[i] % 5, any(wrong, i)})
        box.space.accoda_keys:replace({any({1, 2, 9999}, pick[i]), 'held-by-none-' .. i % 20, 10 ^ 9 + i})
    end
end
return damaged
"""

_DAMAGE_THE_REST = r"""
jit.off(true, true)
local name, count = ...
local queue = box.space.accoda_queues.index.name:get(name)
box.space.accoda_queues:update(queue.no, {{'=', 'ready', 0}, {'=', 'taken', 0}, {'=', 'dead', 3}, {'=', 'delayed', 9}})
local values = {1, true, {1, 2}, 'good', '\xff', 1.5}
for n = 1, count do
    local document = 'damaged/' .. n .. (n % 4 == 0 and '\xff' or '')
    box.space.accoda_documents:replace({document, values[n % #values + 1], n % 3, n % 2})
    box.space.accoda_kept:replace({n % 5, n, n})
end
return 0
"""

_a_number = Decoder(tuple[int])


async def damage(store: TarantoolStorage, rng: Random, count: int, queue: str) -> int:
    """The user of the store must be an administrator."""
    ids = await prepare(store, rng, count, queue)
    connection = await connect(store._client.address)
    damaged = 0
    try:
        for begin in range(0, len(ids), 1000):
            some = ids[begin : begin + 1000]
            kinds, pick = ([rng.randrange(10**6) for _ in some] for _ in range(2))
            damaged += await connection.eval(_DAMAGE, (some, kinds, pick), _a_number)
        await connection.eval(_DAMAGE_THE_REST, (queue, max(5, count // 20)), _a_number)
    finally:
        connection.close()
    return damaged
