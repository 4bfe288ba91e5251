-- Stores an agent.
-- KEYS: agents, seen, checks, health, version, owners, free, numbers of the agent, held by the agent.
-- ARGV: id, record, most agents, "1" for an agent of the configuration, "1" for an agent with a URL, owner or "" for no
-- change (for none, if it is of the configuration), most agents of an owner.
-- Returns 1; 0 if there are too many agents; 4 if the owner has too many; 3 if it has another owner or none.
local id, static, owner = ARGV[1], ARGV[4] == "1", ARGV[6]
local now = string.format("%.0f", clock())
if static then
  -- The configuration decides.
elseif redis.call("HEXISTS", KEYS[1], id) == 1 then
  if owner ~= "" and redis.call("HGET", KEYS[6], id) ~= owner then return 3 end
else
  if redis.call("HLEN", KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
  local own = 0
  for _, of in ipairs(owner ~= "" and redis.call("HVALS", KEYS[6]) or {}) do
    if of == owner then own = own + 1 end
  end
  if own >= tonumber(ARGV[7]) then return 4 end
end
redis.call("HSET", KEYS[1], id, ARGV[2])
if owner ~= "" then
  redis.call("HSET", KEYS[6], id, owner)
elseif static then
  redis.call("HDEL", KEYS[6], id)
end
if not static then redis.call("ZADD", KEYS[2], now, id) end
if ARGV[5] == "1" then
  redis.call("ZADD", KEYS[3], now, id)
else
  redis.call("ZREM", KEYS[3], id)
  redis.call("HDEL", KEYS[4], id)
end
redis.call("ZADD", KEYS[7], "NX", 0, id)
redis.call("HSETNX", KEYS[8], "idle", 0)
redis.call("PERSIST", KEYS[9]) -- remove.lua lets it expire
redis.call("INCR", KEYS[5])
return 1
