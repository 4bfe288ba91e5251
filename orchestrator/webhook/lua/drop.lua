-- Removes an endpoint, if it exists. Without any, the relay of events stops.
-- KEYS: 1 endpoints, 2 names, 3 id of the last relayed event, 4 events. ARGV: id, name.
-- Returns 1, or 0 if the endpoint does not exist.
local id, name = ARGV[1], ARGV[2]
local was = redis.call("HDEL", KEYS[1], id)
if redis.call("HGET", KEYS[2], name) == id then redis.call("HDEL", KEYS[2], name) end
if redis.call("EXISTS", KEYS[1]) == 0 then redis.call("DEL", KEYS[3]) end
return was
