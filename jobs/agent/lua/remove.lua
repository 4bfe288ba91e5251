-- Removes an agent. Its assignments stay, for a day at most.
-- KEYS: agents, seen, free, checks, health, version, numbers of the agent, owners, held by the agent.
-- ARGV: id, "" or the unix ms: then only if it has not called since.
-- Returns 1 if it was removed, else 0.
local id = ARGV[1]
if redis.call("HEXISTS", KEYS[1], id) == 0 then return 0 end
if ARGV[2] ~= "" and tonumber(redis.call("ZSCORE", KEYS[2], id) or 0) > tonumber(ARGV[2]) then return 0 end
for _, key in ipairs({ KEYS[1], KEYS[5], KEYS[8] }) do redis.call("HDEL", key, id) end
for i = 2, 4 do redis.call("ZREM", KEYS[i], id) end
redis.call("INCR", KEYS[6])
redis.call("DEL", KEYS[7])
redis.call("EXPIRE", KEYS[9], 86400)
return 1
