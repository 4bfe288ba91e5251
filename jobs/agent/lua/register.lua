-- Stores an agent under its name.
-- KEYS: agents, names, seen, checks, health, version, owners, free.
-- ARGV: name, id for a new agent, record, most agents, "1" for an agent of the
-- configuration, "1" for an agent with a URL, owner or "" for no change (for none, if it
-- is of the configuration), most agents of an owner, prefix of the numbers of agents.
-- Returns {1, id}; {0, ""} if there are too many agents; {4, ""} if the owner has too
-- many; {3, id} if it has another owner or none.
local now = clock()
local static = ARGV[5] == "1"
local id = redis.call("HGET", KEYS[2], ARGV[1])
if id and not static and ARGV[7] ~= "" then
  if redis.call("HGET", KEYS[7], id) ~= ARGV[7] then return { 3, id } end
end
if not id then
  if not static and redis.call("HLEN", KEYS[1]) >= tonumber(ARGV[4]) then return { 0, "" } end
  if not static and ARGV[7] ~= "" then
    local own = 0
    for _, owner in ipairs(redis.call("HVALS", KEYS[7])) do
      if owner == ARGV[7] then own = own + 1 end
    end
    if own >= tonumber(ARGV[8]) then return { 4, "" } end
  end
  id = ARGV[2]
end
redis.call("HSET", KEYS[1], id, ARGV[3])
redis.call("HSET", KEYS[2], ARGV[1], id)
if ARGV[7] ~= "" then
  redis.call("HSET", KEYS[7], id, ARGV[7])
elseif static then
  redis.call("HDEL", KEYS[7], id)
end
if not static then redis.call("ZADD", KEYS[3], string.format("%.0f", now), id) end
if ARGV[6] == "1" then
  redis.call("ZADD", KEYS[4], string.format("%.0f", now), id)
else
  redis.call("ZREM", KEYS[4], id)
  redis.call("HDEL", KEYS[5], id)
end
redis.call("ZADD", KEYS[8], "NX", 0, id)
redis.call("HSETNX", ARGV[9] .. id, "idle", 0)
redis.call("INCR", KEYS[6])
return { 1, id }
