-- Removes a revoked or expired key.
-- KEYS: index, record of the key. ARGV: ID, current time (Unix ms).
-- Returns 1 if it was removed, else 0.
local at = redis.call("HMGET", KEYS[2], "revoked", "expires")
if not at[1] and (not at[2] or (tonumber(at[2]) or 0) > tonumber(ARGV[2])) then return 0 end
redis.call("ZREM", KEYS[1], ARGV[1])
redis.call("DEL", KEYS[2])
return 1
