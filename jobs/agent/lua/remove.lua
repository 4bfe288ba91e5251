-- Removes an agent. Its assignments stay, for a day at most.
-- KEYS: agents, names, seen, free, checks, health, version, numbers of the agent,
-- owners, held by the agent.
-- ARGV: id, its name, "" or the unix ms: then only if it has not called since.
-- Returns 1 if it was removed, else 0.
local id = ARGV[1]
if redis.call("HEXISTS", KEYS[1], id) == 0 then return 0 end
if ARGV[3] ~= "" and tonumber(redis.call("ZSCORE", KEYS[3], id) or 0) > tonumber(ARGV[3]) then return 0 end
redis.call("HDEL", KEYS[1], id)
redis.call("HDEL", KEYS[9], id)
if redis.call("HGET", KEYS[2], ARGV[2]) == id then redis.call("HDEL", KEYS[2], ARGV[2]) end
redis.call("ZREM", KEYS[3], id)
redis.call("ZREM", KEYS[4], id)
redis.call("ZREM", KEYS[5], id)
redis.call("HDEL", KEYS[6], id)
redis.call("INCR", KEYS[7])
redis.call("DEL", KEYS[8])
redis.call("EXPIRE", KEYS[10], 86400)
return 1
