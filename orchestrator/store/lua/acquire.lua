-- Takes the lock of the store if it is free.
-- KEYS: 1 schema. ARGV: holder, what it does, ms that the lock lasts.
-- Returns {token} if it was taken, else {0, holder, what it does, ms until its lock ends}.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local by = redis.call("HMGET", KEYS[1], "holder", "what", "until")
if by[1] and tonumber(by[3]) > now then return { 0, by[1], by[2], tonumber(by[3]) - now } end
local token = redis.call("HINCRBY", KEYS[1], "token", 1)
redis.call("HSET", KEYS[1], "holder", ARGV[1], "what", ARGV[2], "until", string.format("%.0f", now + tonumber(ARGV[3])))
return { token }
