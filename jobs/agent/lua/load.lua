-- Reads what is known of an assignment beside its work. The call is a sign of
-- life of its agent.
-- KEYS: record of the assignment, agents, seen, held by the agent. ARGV: id, the
-- agent that calls or "" for a process of ours.
-- Returns {unix ms of now, outcome, digest, usage, unix ms at which its lease
-- expires or "" if the agent does not hold it}.
local time = redis.call("TIME")
local now = string.format("%.0f", tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
if ARGV[2] ~= "" and redis.call("HEXISTS", KEYS[2], ARGV[2]) == 1 then redis.call("ZADD", KEYS[3], now, ARGV[2]) end
local r = redis.call("HMGET", KEYS[1], "outcome", "digest", "usage")
return { now, r[1] or "", r[2] or "", r[3] or "", redis.call("ZSCORE", KEYS[4], ARGV[1]) or "" }
