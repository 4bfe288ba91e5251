-- Acquires the lock of the store if it is free.
-- KEYS: 1 schema. ARGV: holder, lease in ms.
-- Returns {token} on success, else {0, holder, ms until its lock expires}.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local by = redis.call("HMGET", KEYS[1], "holder", "until", "token")
local left = (tonumber(by[2] or "") or 0) - now
if by[1] and left > 0 then return { 0, by[1], left } end
-- Based on the clock, so that it exceeds the tokens in fences even if the last token was lost.
local token = math.max(tonumber(time[1]) * 1000000 + tonumber(time[2]), (tonumber(by[3] or "") or 0) + 1)
redis.call("HSET", KEYS[1], "token", string.format("%.0f", token), "holder", ARGV[1], "until", string.format("%.0f", now + tonumber(ARGV[2])))
return { token }
