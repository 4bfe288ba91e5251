-- Records the use of a key, unless a use was recorded recently.
-- KEYS: record of the key. ARGV: current time (Unix ms), minimum interval between records in ms.
-- Returns 1 if it was recorded, else 0.
local last = redis.call("HMGET", KEYS[1], "name", "used")
if not last[1] or (last[2] and tonumber(ARGV[1]) - (tonumber(last[2]) or 0) < tonumber(ARGV[2])) then return 0 end
redis.call("HSET", KEYS[1], "used", ARGV[1])
return 1
