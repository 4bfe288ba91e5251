-- Counts the assignments of a role.
-- KEYS: assignments of the role. ARGV: none.
-- Returns {how many, ms until the lease of the first expires}.
local now = clock()
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", string.format("%.0f", now))
local first = redis.call("ZRANGE", KEYS[1], 0, 0, "WITHSCORES")[2]
return { redis.call("ZCARD", KEYS[1]), first and tonumber(first) - now or 0 }
