-- Shared by the scripts that change the limit of a key; appended to lib. A concurrency has places; each start of a rate takes a
-- token. Below, both are places.
-- KEYS as in lib
-- ARGV[1] name of the limit, see limitKey, [2] its rule '<n> <µs, or 0 for a concurrency>'; '' for the stored one
-- returns nothing: it defines the functions below
local LEASE = 10000    -- ms for which a node has a place; its worker renews that
local RESERVED = 8000  -- ms for which a place is reserved
local TAKE_OVER = 2000 -- ms after which another node can have a reserved place
local MOST_NODES = 100       -- nodes that one call handles
local GATHER = 20      -- ms between two calls that hand out the tokens of a rate
local us = T[1] * 1000000 + T[2]
local note = '!limit/' .. ARGV[1]
local placesKey, reservedKey, waitingKey = P .. 'limit:places:' .. ARGV[1], P .. 'limit:reserved:' .. ARGV[1], P .. 'limit:waiting:' .. ARGV[1]
local ruleKey, rateKey = P .. 'limit:rule:' .. ARGV[1], P .. 'limit:rate:' .. ARGV[1]

-- stored is the rule in Redis, which exists from the first node that waits until there are no places, reservations and waiting
-- nodes any more. Until then the agenda has an entry for the limit.
local stored = redis.call('GET', ruleKey)
local rule = ARGV[2] ~= '' and ARGV[2] or stored
local n, per = string.match(rule or '1 0', '^(%d+) (%d+)$')
n, per = tonumber(n), tonumber(per)

-- spent returns the time (µs) from which on all tokens of the rate are free.
local function spent() return math.min(us + per, math.max(us, tonumber(redis.call('GET', rateKey) or '0'))) end

-- free returns the number of free places; below 0 after the limit was lowered.
local function free()
  if per == 0 then return n - redis.call('ZCARD', placesKey) - redis.call('ZCARD', reservedKey) end
  return math.floor((us + per - spent()) * n / per + 1e-6)
end

-- spend takes tokens of a rate.
local function spend(k)
  if per == 0 or k == 0 then return end
  local at = spent() + k * per / n
  redis.call('SET', rateKey, string.format('%.0f', at), 'PX', whole(math.ceil((at - us) / 1000) + 1000))
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
  spend(#first / 2)
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
  for _, key in ipairs({placesKey, reservedKey}) do
    local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    local ends = tonumber(first[2] or '')
    if ends and (not at or ends < at) then at = ends end
  end
  if waits and free() > 0 then
    at = now
  elseif waits and per > 0 then
    local gather = math.min(GATHER, per * (n - 1) / n / 1000)
    local token = now + math.max(1, gather, math.ceil((spent() + per / n - per - us) / 1000))
    at = math.min(at or token, token)
  end
  if not at then
    redis.call('DEL', ruleKey)
    redis.call('ZREM', P .. 'agenda', note)
    return '-1'
  end
  if stored ~= rule then redis.call('SET', ruleKey, rule) end
  redis.call('ZADD', P .. 'agenda', whole(at), note)
  return whole(math.max(0, at - now))
end
