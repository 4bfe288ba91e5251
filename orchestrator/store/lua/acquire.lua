-- Takes the lock of the store if it is free.
-- KEYS: 1 schema. ARGV: holder, what it does, ms that the lock lasts.
-- Returns {token} if it was taken, else {0, holder, what it does, ms until its lock ends}.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local by = redis.call("HMGET", KEYS[1], "holder", "what", "until", "token")
local left = (tonumber(by[3] or "") or 0) - now
if by[1] and left > 0 then return { 0, by[1], by[2] or "", left } end
-- By the clock, so that it is above those in fences also when the last one is damaged, or gone.
local token = math.max(tonumber(time[1]) * 1000000 + tonumber(time[2]), (tonumber(by[4] or "") or 0) + 1)
redis.call("HSET", KEYS[1], "token", string.format("%.0f", token), "holder", ARGV[1], "what", ARGV[2], "until", string.format("%.0f", now + tonumber(ARGV[3])))
return { token }
