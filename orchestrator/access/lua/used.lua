-- Notes that a key was used, unless that was noted a short time ago.
-- KEYS: record of the key. ARGV: unix ms of now, least ms between two notes.
-- Returns 1 if it was noted, else 0.
local last = redis.call("HMGET", KEYS[1], "name", "used")
if not last[1] or (last[2] and tonumber(ARGV[1]) - (tonumber(last[2]) or 0) < tonumber(ARGV[2])) then return 0 end
redis.call("HSET", KEYS[1], "used", ARGV[1])
return 1
