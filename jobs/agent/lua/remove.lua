-- Removes an agent. Its assignments stay, for a day at most.
-- KEYS: agents, names, seen, drained, resting, static, checks, health, version,
-- numbers of the agent, usage of the agent, owners, held by the agent.
-- ARGV: id, its name, "" or the unix ms: then only if it has given no sign of
-- life since and is not of the configuration.
-- Returns 1 if it was removed, else 0.
local id = ARGV[1]
if redis.call("HEXISTS", KEYS[1], id) == 0 then return 0 end
if ARGV[3] ~= "" and (tonumber(redis.call("ZSCORE", KEYS[3], id) or 0) > tonumber(ARGV[3]) or redis.call("ZSCORE", KEYS[6], id)) then
  return 0
end
redis.call("HDEL", KEYS[1], id)
redis.call("HDEL", KEYS[12], id)
if redis.call("HGET", KEYS[2], ARGV[2]) == id then redis.call("HDEL", KEYS[2], ARGV[2]) end
redis.call("ZREM", KEYS[3], id)
redis.call("SREM", KEYS[4], id)
redis.call("ZREM", KEYS[5], id)
redis.call("ZREM", KEYS[6], id)
redis.call("ZREM", KEYS[7], id)
redis.call("HDEL", KEYS[8], id)
redis.call("INCR", KEYS[9])
redis.call("DEL", KEYS[10], KEYS[11])
redis.call("EXPIRE", KEYS[13], 86400)
return 1
