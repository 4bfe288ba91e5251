-- Shared by the scripts that change a limit for a key; appended to lib. A node that runs has a place of a concurrency. A node that
-- starts takes a place of a rate, which ends after the period: so no period has more starts than places.
-- KEYS as in lib
-- ARGV[1] '<limit>\t<key>', see limitKey, [2] its rule as declared, '<n> <ms, or 0 for a concurrency>'; '' for the stored one
-- returns nothing: it defines the functions below
local LEASE = 10000    -- ms for which a node has a place of a concurrency; its worker renews that
local RESERVED = 8000  -- ms for which a place is reserved
local TAKE_OVER = 2000 -- ms after which another node can have a reserved place
local MOST_NODES = 100 -- nodes that one call handles
local MOST_PLACES = 1000 -- of a rate; one of more is limited in equal parts of its period
local GATHER = 20      -- ms between two calls that hand out the places of a rate
local us = T[1] * 1000000 + T[2]
local name, limit = ARGV[1], string.match(ARGV[1], '^[^\t]*')
local note = '!limit/' .. name
local placesKey, reservedKey, waitingKey = P .. 'limit:places:' .. name, P .. 'limit:reserved:' .. name, P .. 'limit:waiting:' .. name

-- stored is the rule in Redis, which exists from the first node that waits until there are no places, reservations and waiting
-- nodes any more.
local stored = redis.call('HGET', P .. 'limit:rules', name)
local rule = ARGV[2] ~= '' and ARGV[2] or stored
local n, per = string.match(rule or '1 0', '^(%d+) (%d+)$')
local set = redis.call('HMGET', P .. 'limit:set', 'n ' .. name, 'n ' .. limit, 'h ' .. name, 'h ' .. limit)
n, per = tonumber(set[1] or set[2] or n), tonumber(per)
local held = math.max(tonumber(set[3] or '') or 0, tonumber(set[4] or '') or 0) -- nothing starts until then
if per > 0 then
  local parts = math.max(1, math.ceil(n / MOST_PLACES))
  n, per = math.floor(n / parts), math.ceil(per / parts)
  redis.call('ZREMRANGEBYSCORE', placesKey, '-inf', whole(now))
  redis.call('ZREMRANGEBYSCORE', placesKey, '(' .. whole(now + per + 1), '+inf') -- the clock was set back
end

-- free returns the number of free places; below 0 after the limit was lowered.
local function free()
  if held > now then return 0 end
  return n - redis.call('ZCARD', placesKey) - redis.call('ZCARD', reservedKey)
end

-- tell has the steps for the caller: for each, a set of three. It makes a node that waits in its workflow ready:
-- '<shard> <workflow>/<node>', the end of the reservation, and when the node began to wait, in µs. If the node has a reservation or a
-- place that has expired, the last one is 'reserved' or 'place', and the first a member of this set.
local tell = {}

-- grant reserves the free places for the first nodes that wait.
local function grant()
  local k = math.min(free(), MOST_NODES)
  if k <= 0 then return end
  local first = redis.call('ZPOPMIN', waitingKey, k)
  for i = 1, #first, 2 do
    local ends = whole(now + RESERVED)
    redis.call('ZADD', reservedKey, ends, first[i])
    tell[#tell + 1] = first[i]
    tell[#tell + 1] = ends
    tell[#tell + 1] = string.format('%.0f', tonumber(first[i + 1]))
  end
end

-- schedule stores the rule and when the agenda has the limit next. It returns the ms until then, or -1 for never.
local function schedule()
  local waits = redis.call('EXISTS', waitingKey) == 1
  local at
  local function by(time)
    if time and (not at or time < at) then at = time end
  end
  local function first(key) return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or '') end
  by(first(reservedKey))
  if waits and held > now then
    by(held)
  elseif waits and free() > 0 then
    by(now)
  elseif waits and per > 0 then
    local token = first(placesKey)
    by(token and token + math.min(GATHER, math.floor(per * math.max(0, n - 1) / math.max(1, n))))
  end
  if per == 0 then by(first(placesKey)) end
  if not at and not waits then
    redis.call('HDEL', P .. 'limit:rules', name)
  elseif stored ~= rule then
    redis.call('HSET', P .. 'limit:rules', name, rule)
  end
  if not at then
    redis.call('ZREM', P .. 'agenda', note)
    return '-1'
  end
  redis.call('ZADD', P .. 'agenda', whole(at), note)
  return whole(math.max(0, at - now))
end
