-- Decides whether a request is allowed.
-- KEYS: breaker, trials. ARGV: token, cooldown ms, maximum cooldown ms after
-- failed trials, number of trials, trial ttl ms.
-- Returns {0 blocked | 1 allowed | 2 allowed as a trial | 3 trials are running |
-- 4 blocked for the first time, ms until the next call is useful, unix ms of the
-- opening}. Counts the calls while the breaker is not closed.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

-- bound limits the expiry of the members of a sorted set: later ones were stored before the clock was set back.
local function bound(key, latest)
  for _, member in ipairs(redis.call("ZRANGEBYSCORE", key, "(" .. string.format("%.0f", latest), "+inf", "LIMIT", 0, 1000)) do
    redis.call("ZADD", key, string.format("%.0f", latest), member)
  end
end

local state = redis.call("HGET", KEYS[1], "state")
if state ~= "open" and state ~= "half_open" then return { 1, 0 } end
if state == "open" then
  local failed = tonumber(redis.call("HGET", KEYS[1], "trials_failed") or "") or 0
  local cooldown = math.min(tonumber(ARGV[2]) * 2 ^ failed, tonumber(ARGV[3]))
  local opened = tonumber(redis.call("HGET", KEYS[1], "opened_at") or "") or 0
  if opened > now then -- the clock was set back: restart the cooldown
    opened = now
    redis.call("HSET", KEYS[1], "opened_at", string.format("%.0f", now), "until", string.format("%.0f", now + cooldown))
  end
  local left = opened + cooldown - now
  if left > 0 then
    local first = redis.call("HINCRBY", KEYS[1], "blocked", 1) == 1
    return { first and 4 or 0, left, opened }
  end
  redis.call("HSET", KEYS[1], "state", "half_open")
  redis.call("DEL", KEYS[2])
end
redis.call("ZREMRANGEBYSCORE", KEYS[2], "-inf", now)
bound(KEYS[2], now + tonumber(ARGV[5]))
if redis.call("ZCARD", KEYS[2]) >= tonumber(ARGV[4]) then
  redis.call("HINCRBY", KEYS[1], "blocked", 1)
  local first = redis.call("ZRANGE", KEYS[2], 0, 0, "WITHSCORES")
  return { 3, math.max(1, math.min(1000, tonumber(first[2]) - now)) }
end
redis.call("HINCRBY", KEYS[1], "allowed", 1)
redis.call("ZADD", KEYS[2], now + tonumber(ARGV[5]), ARGV[1])
redis.call("PEXPIRE", KEYS[2], 86400000)
redis.call("PEXPIRE", KEYS[1], 86400000)
return { 2, 0 }
