"""Lua scripts for Redis, each atomic and one round trip."""

PUT = """
for i = 2, #KEYS, 3 do
  local standing = redis.pcall('GET', KEYS[i])
  if type(standing) == 'table' then standing = false end
  if standing and ARGV[2] ~= '*' and standing ~= ARGV[2] then return standing end
  local body, digest = ARGV[i + 2], ARGV[i + 3]
  redis.call('SADD', KEYS[1], ARGV[i + 4])
  redis.call('SADD', KEYS[i + 1], digest)
  redis.call('SADD', KEYS[i + 2], digest)
  if ARGV[1] == '0' then redis.call('SET', KEYS[i], body) else redis.call('SET', KEYS[i], body, 'PX', ARGV[1]) end
  if standing ~= body then redis.call('PUBLISH', ARGV[3], digest) end
end
return false
"""
"""Stores decisions. KEYS: kernels, then for each the decision, its kernel, its related keys. ARGV: expiry, the value
that may be replaced (`*`: any), channel, then for each body, digest, kernel. Returns nothing, or the value in the way;
values that are not strings are not ours and are replaced. The sets come first: a decision is never without them."""

FILL = """
local filled = 0
for i = 2, #KEYS, 4 do
  local body, digest, kernel, mark = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  if redis.call('EXISTS', KEYS[i]) == 0 and (redis.call('GET', KEYS[i + 3]) or '') == mark then
    redis.call('SADD', KEYS[1], kernel)
    redis.call('SADD', KEYS[i + 1], digest)
    redis.call('SADD', KEYS[i + 2], digest)
    if ARGV[1] == '0' then redis.call('SET', KEYS[i], body) else redis.call('SET', KEYS[i], body, 'PX', ARGV[1]) end
    if mark ~= '' then
      redis.call('DEL', KEYS[i + 3])
      redis.call('PUBLISH', ARGV[2], digest)
    end
    filled = filled + 1
  end
end
return filled
"""
"""Copies decisions that are absent and whose mark is still that of the token. KEYS: kernels, then for each the
decision, its kernel, its related keys, its mark. ARGV: expiry, channel, then for each body, digest, kernel, mark or ''.
Returns how many."""

INVALIDATE = """
for i = 1, #KEYS, 2 do
  local digest, own = ARGV[i + 2], ARGV[i + 3]
  if redis.call('EXISTS', KEYS[i + 1]) == 1 then own = 'contested' end
  redis.call('SET', KEYS[i + 1], own, 'PX', ARGV[1])
  if redis.call('UNLINK', KEYS[i]) == 1 then redis.call('PUBLISH', ARGV[2], digest) end
end
"""
"""Removes decisions that are about to change and marks them. If one has a mark already, two processes change it, and
neither may fill it. KEYS: for each the decision and its mark. ARGV: milliseconds, channel, for each digest and mark."""

FORGET = """
for i = 2, #ARGV do
  if redis.call('EXISTS', ARGV[1] .. ARGV[i]) == 0 then redis.call('SREM', KEYS[1], ARGV[i]) end
end
"""
"""Removes members of a set whose decisions are gone. KEYS: set. ARGV: prefix of their keys, members."""

RECORD = """
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('HSETNX', KEYS[2], ARGV[2], ARGV[3])
redis.call('RPUSH', KEYS[3], ARGV[4])
"""
"""Appends a batch to a journal. KEYS: kernels, journals of the kernel, journal. ARGV: kernel, digest, key, batch."""

CLAIM = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
"""Acquires or renews a lease. KEYS: lease. ARGV: owner, milliseconds."""

RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""
"""Releases a lease. KEYS: lease. ARGV: owner."""

KEEP = """
if ARGV[4] == '0' then
  local standing = redis.call('GET', KEYS[1])
  if standing then return standing end
end
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
redis.call('ZADD', KEYS[2], (tonumber(last[2]) or 0) + 1, ARGV[1])
if ARGV[3] == '0' then redis.call('SET', KEYS[1], ARGV[2]) else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return false
"""
"""Stores an entry as the newest of its namespace. KEYS: entry, order. ARGV: name, body, milliseconds or 0, replace.
Returns nothing, or the value in the way."""

ENTRIES = """
local page = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[3])
local names, bodies = {}, {}
for i = 1, #page, 2 do
  local body = redis.call('GET', ARGV[1] .. page[i])
  if body then
    names[#names + 1] = page[i]
    bodies[#bodies + 1] = body
  else
    redis.call('ZREM', KEYS[1], page[i])
  end
end
return {#page == 2 * ARGV[3] and '(' .. page[#page] or '', names, bodies}
"""
"""Reads a page of a namespace, oldest first, and removes expired entries. KEYS: order. ARGV: prefix of entries, after,
size. Returns where the next page begins, names, bodies."""

CLEAR = """
local most = math.min(redis.call('ZCARD', KEYS[1]) - ARGV[2], ARGV[3])
if most <= 0 then return {0, 0} end
local popped, gone = redis.call('ZPOPMIN', KEYS[1], most), 0
for i = 1, #popped, 2 do gone = gone + redis.call('UNLINK', ARGV[1] .. popped[i]) end
return {#popped / 2, gone}
"""
"""Removes the oldest entries. KEYS: order. ARGV: prefix of entries, how many to keep, how many to remove at most.
Returns how many were removed, and how many of them had not expired."""

PUT_LOGGED = """
local standing = redis.pcall('GET', KEYS[2])
if type(standing) == 'table' then standing = false end
if (standing or '') ~= ARGV[2] then return 0 end
local last = redis.call('ZRANGE', KEYS[6], -1, -1, 'WITHSCORES')
if (last[1] or '') ~= ARGV[8] or redis.call('EXISTS', KEYS[5]) == 1 then return 0 end
redis.call('ZADD', KEYS[6], (tonumber(last[2]) or 0) + 1, ARGV[7])
redis.call('SET', KEYS[5], ARGV[9])
redis.call('SADD', KEYS[1], ARGV[6])
redis.call('SADD', KEYS[3], ARGV[5])
redis.call('SADD', KEYS[4], ARGV[5])
if ARGV[1] == '0' then redis.call('SET', KEYS[2], ARGV[4]) else redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[1]) end
redis.call('PUBLISH', ARGV[3], ARGV[5])
return 1
"""
"""Stores a decision and appends an entry to a log. KEYS: kernels, decision, its kernel, its related keys, entry, order.
ARGV: expiry, the value to replace or nothing, channel, body, digest, kernel, name of the entry, name of the last one,
content of the entry. Returns 0, and changes nothing, if another value or another last entry is there. The file of a
server has the whole script or nothing of it."""
