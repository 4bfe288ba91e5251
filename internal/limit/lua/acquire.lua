-- Acquires a slot of a key, or a position in the queue.
-- KEYS: slots, waiters, alive. ARGV: holder, limit, ttl ms, wait 0|1, lifetime
-- of a waiter in ms.
-- Returns 1 acquired (or already held) | 0 not.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local holder, ttl, alive = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[5])

redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", now)
-- Holders that expire later than a new one were stored before the clock was set back.
local latest = string.format("%.0f", now + ttl)
for _, h in ipairs(redis.call("ZRANGEBYSCORE", KEYS[1], "(" .. latest, "+inf", "LIMIT", 0, 1000)) do
  redis.call("ZADD", KEYS[1], latest, h)
end
local ahead = 0
for _, w in ipairs(redis.call("ZRANGE", KEYS[2], 0, 199)) do
  if w == holder then break end
  local till = tonumber(redis.call("HGET", KEYS[3], w) or "") or 0
  if till < now then
    redis.call("ZREM", KEYS[2], w)
    redis.call("HDEL", KEYS[3], w)
  else
    if till > now + alive then redis.call("HSET", KEYS[3], w, now + alive) end
    ahead = ahead + 1
  end
end

local held = redis.call("ZSCORE", KEYS[1], holder)
if held or redis.call("ZCARD", KEYS[1]) + ahead < tonumber(ARGV[2]) then
  redis.call("ZADD", KEYS[1], now + ttl, holder)
  if redis.call("PTTL", KEYS[1]) < 2 * ttl then redis.call("PEXPIRE", KEYS[1], 2 * ttl) end
  redis.call("ZREM", KEYS[2], holder)
  redis.call("HDEL", KEYS[3], holder)
  return 1
end
if ARGV[4] == "1" then
  if not redis.call("ZSCORE", KEYS[2], holder) then
    local last = redis.call("ZRANGE", KEYS[2], -1, -1, "WITHSCORES")
    redis.call("ZADD", KEYS[2], tonumber(last[2] or 0) + 1, holder)
  end
  redis.call("HSET", KEYS[3], holder, now + alive)
  redis.call("PEXPIRE", KEYS[2], 2 * alive)
  redis.call("PEXPIRE", KEYS[3], 2 * alive)
end
return 0
