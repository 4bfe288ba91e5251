-- Reads the jobs that must be advanced now. They come back by themselves after a while, unless done.lua removes them.
-- KEYS: 1 todo. ARGV: how many, ms after which they come back.
-- Returns the score that they have now, ms until the next is due or -1, then the jobs.
clock()
local ids = redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", now, "LIMIT", 0, tonumber(ARGV[1]))
local back = string.format("%.0f", now + tonumber(ARGV[2]))
for _, id in ipairs(ids) do redis.call("ZADD", KEYS[1], back, id) end
local first = redis.call("ZRANGE", KEYS[1], 0, 0, "WITHSCORES")
local wait = first[2] and math.max(0, tonumber(first[2]) - now) or -1
local out = { back, string.format("%.0f", wait) }
for i, id in ipairs(ids) do out[2 + i] = id end
return out
