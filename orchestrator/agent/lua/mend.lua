-- Removes a key that has another type than it must have, or one value of it.
-- KEYS: key. ARGV: the type it must have, a field of the hash or "", and the value
-- that the field, or the string, was found with.
-- Returns 1 if it removed something, else 0.
local is = redis.call("TYPE", KEYS[1]).ok
if is == "none" then return 0 end
if is ~= ARGV[1] then return redis.call("DEL", KEYS[1]) end
if is == "hash" and redis.call("HGET", KEYS[1], ARGV[2]) == ARGV[3] then return redis.call("HDEL", KEYS[1], ARGV[2]) end
if is == "string" and redis.call("GET", KEYS[1]) == ARGV[3] then return redis.call("DEL", KEYS[1]) end
return 0
