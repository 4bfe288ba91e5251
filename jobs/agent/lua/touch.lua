-- Stores a heartbeat of an agent.
-- KEYS: agents, seen, free, held by the agent, numbers of the agent.
-- ARGV: id, drained.
-- Returns {record, 1 if it is drained else 0, assignments held, unix ms since
-- which it is idle, unix ms of now}, or {} if the agent does not exist.
local now = clock()
local record = redis.call("HGET", KEYS[1], ARGV[1])
local free = redis.call("ZSCORE", KEYS[3], ARGV[1])
if not record or not free then return {} end
redis.call("ZADD", KEYS[2], string.format("%.0f", now), ARGV[1])
local held = redis.call("ZCOUNT", KEYS[4], "(" .. string.format("%.0f", now), "+inf")
local idle = tonumber(redis.call("HGET", KEYS[5], "idle") or 0) or 0
return { record, tonumber(free) >= tonumber(ARGV[2]) and 1 or 0, held, idle, now }
