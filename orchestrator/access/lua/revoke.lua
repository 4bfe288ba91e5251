-- Revokes a key.
-- KEYS: record of the key. ARGV: unix ms of now.
-- Returns 1, 0 if it is revoked already, or -1 if there is no such key.
if redis.call("EXISTS", KEYS[1]) == 0 then return -1 end
return redis.call("HSETNX", KEYS[1], "revoked", ARGV[1])
