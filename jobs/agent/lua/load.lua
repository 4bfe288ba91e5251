-- Reads the record of an assignment. The call is a heartbeat of its agent.
-- KEYS: record of the assignment, seen, held by the agent. ARGV: id, the
-- calling agent or "" for a server process, the usage of the assignment so far or
-- "": it is stored before the work is settled, so that it is counted whichever
-- process dies.
-- Returns {unix ms of now, outcome, digest, usage before, unix ms at which its lease
-- expires or "" if the agent does not hold it}.
now = string.format("%.0f", now)
if ARGV[2] ~= "" then redis.call("ZADD", KEYS[2], "XX", now, ARGV[2]) end
local r = redis.call("HMGET", KEYS[1], "outcome", "digest", "usage")
local held = redis.call("ZSCORE", KEYS[3], ARGV[1])
if ARGV[3] ~= "" and held and not r[1] then
  redis.call("HSET", KEYS[1], "usage", ARGV[3])
  redis.call("EXPIRE", KEYS[1], 86400)
end
return { now, r[1] or "", r[2] or "", r[3] or "", held or "" }
