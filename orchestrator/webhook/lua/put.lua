-- Stores an endpoint that is new or unchanged since it was read. The first one starts the relay of events.
-- KEYS: 1 endpoints, 2 names, 3 id of the last relayed event, 4 events.
-- ARGV: id, name, record, the replaced record ("" for a new endpoint), maximum number of endpoints.
-- Returns 1, 0 if it was changed or removed, -1 if there are too many endpoints, or -2 if another endpoint has the name.
local id, name = ARGV[1], ARGV[2]
local old = redis.call("HGET", KEYS[1], id)
if old == ARGV[3] then return 1 end -- the client has sent it again
if (old or "") ~= ARGV[4] then return 0 end
if not old and redis.call("HLEN", KEYS[1]) >= tonumber(ARGV[5]) then return -1 end
local holder = redis.call("HGET", KEYS[2], name)
if holder and holder ~= id and redis.call("HEXISTS", KEYS[1], holder) == 1 then return -2 end
redis.call("HSET", KEYS[1], id, ARGV[3])
redis.call("HSET", KEYS[2], name, id)
if redis.call("EXISTS", KEYS[3]) == 0 then
  local last = redis.call("XREVRANGE", KEYS[4], "+", "-", "COUNT", 1)[1]
  redis.call("SET", KEYS[3], last and last[1] or "0-0")
end
return 1
