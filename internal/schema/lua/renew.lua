-- Extends or releases the lock of the store, if it has the given token and has not expired.
-- KEYS: 1 schema. ARGV: token, new lease in ms, or 0 to release the lock.
-- Returns 1, or 0 if the lock is lost.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local at = redis.call("HMGET", KEYS[1], "token", "until")
if at[1] ~= ARGV[1] or not at[2] or (tonumber(at[2]) or 0) <= now then return 0 end
if ARGV[2] == "0" then
  redis.call("HDEL", KEYS[1], "holder", "until")
else
  redis.call("HSET", KEYS[1], "until", string.format("%.0f", now + tonumber(ARGV[2])))
end
return 1
