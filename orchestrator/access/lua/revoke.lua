-- Revokes a key.
-- KEYS: record of the key. ARGV: current time (Unix ms).
-- Returns 1, 0 if it was already revoked, or -1 if it does not exist.
if redis.call("EXISTS", KEYS[1]) == 0 then return -1 end
return redis.call("HSETNX", KEYS[1], "revoked", ARGV[1])
