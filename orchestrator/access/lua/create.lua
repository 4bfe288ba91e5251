-- Stores a key unless the limit is reached or Redis is volatile.
-- KEYS: index, record of the key, volatile.
-- ARGV: ID, maximum number of keys, name, role, hash, creation time (Unix ms), expiry (Unix ms or ""), space-separated agent
-- roles.
-- Returns 1, 0 at the limit, or -1 if Redis is volatile.
if redis.call("EXISTS", KEYS[3]) == 1 then return -1 end
if redis.call("ZCARD", KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call("ZADD", KEYS[1], ARGV[6], ARGV[1])
redis.call("HSET", KEYS[2], "name", ARGV[3], "role", ARGV[4], "hash", ARGV[5], "created", ARGV[6])
if ARGV[7] ~= "" then redis.call("HSET", KEYS[2], "expires", ARGV[7]) end
if ARGV[8] ~= "" then redis.call("HSET", KEYS[2], "agent_roles", ARGV[8]) end
return 1
