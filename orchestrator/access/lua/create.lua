-- Stores a key unless the limit is reached.
-- KEYS: index, record of the key.
-- ARGV: ID, maximum number of keys, name, role, hash, creation time (Unix ms), expiry (Unix ms or ""), space-separated agent
-- roles.
-- Returns 1, or 0 at the limit.
if redis.call("ZCARD", KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call("ZADD", KEYS[1], ARGV[6], ARGV[1])
redis.call("HSET", KEYS[2], "name", ARGV[3], "role", ARGV[4], "hash", ARGV[5], "created", ARGV[6])
if ARGV[7] ~= "" then redis.call("HSET", KEYS[2], "expires", ARGV[7]) end
if ARGV[8] ~= "" then redis.call("HSET", KEYS[2], "agent_roles", ARGV[8]) end
return 1
