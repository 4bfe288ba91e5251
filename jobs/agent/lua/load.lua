-- Reads the record of an assignment. The call is a heartbeat of its agent.
-- KEYS: record of the assignment, seen, held by the agent. ARGV: id, the calling agent or "" for a server process.
-- Returns {unix ms of now, record or "", unix ms at which its lease expires or "" if the agent does not hold it}.
local now = string.format("%.0f", clock())
if ARGV[2] ~= "" then redis.call("ZADD", KEYS[2], "XX", now, ARGV[2]) end
return { now, redis.call("GET", KEYS[1]) or "", redis.call("ZSCORE", KEYS[3], ARGV[1]) or "" }
