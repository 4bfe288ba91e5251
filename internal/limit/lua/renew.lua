-- Renews a held slot.
-- KEYS: slots. ARGV: holder, ttl ms.
-- Returns 1 if it was held, 0 if not.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local ends = redis.call("ZSCORE", KEYS[1], ARGV[1])
if not ends or tonumber(ends) < now then return 0 end
redis.call("ZADD", KEYS[1], now + tonumber(ARGV[2]), ARGV[1])
redis.call("PEXPIRE", KEYS[1], 2 * tonumber(ARGV[2]))
return 1
