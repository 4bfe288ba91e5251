-- Removes an endpoint. Removing the last one stops the relay of events.
-- KEYS: 1 endpoints, 2 names, 3 static, 4 id of the last relayed event, 5 events. ARGV: id, name.
-- Returns 1, or 0 if the endpoint does not exist.
local id, name = ARGV[1], ARGV[2]
local was = redis.call("HDEL", KEYS[1], id)
if redis.call("HGET", KEYS[2], name) == id then redis.call("HDEL", KEYS[2], name) end
redis.call("ZREM", KEYS[3], id)
if redis.call("EXISTS", KEYS[1]) == 0 then redis.call("DEL", KEYS[4]) end
return was
