-- Stores assignments of an agent.
-- KEYS: held by the agent, due, numbers of the agent, agents, then the record of
-- each assignment.
-- ARGV: agent, ms until a record expires that no process closes, then for each
-- assignment: id, role, fence, work, deadline in unix ms, ms of its lease, mode,
-- ms until it is due, job.
-- Returns the unix ms of now.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
for i = 5, #KEYS do
  local at = 2 + (i - 5) * 9
  local id, deadline, lease = ARGV[at + 1], tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
  redis.call("HSET", KEYS[i], "agent", ARGV[1], "state", "open", "role", ARGV[at + 2], "fence", ARGV[at + 3],
    "work", ARGV[at + 4], "deadline", ARGV[at + 5], "lease", ARGV[at + 6],
    "until", string.format("%.0f", now + lease), "mode", ARGV[at + 7], "job", ARGV[at + 9], "at", string.format("%.0f", now))
  local keep = math.max(deadline, now) + tonumber(ARGV[2])
  redis.call("PEXPIREAT", KEYS[i], string.format("%.0f", keep))
  redis.call("ZADD", KEYS[1], string.format("%.0f", keep), id)
  redis.call("ZADD", KEYS[2], string.format("%.0f", math.min(deadline, now + tonumber(ARGV[at + 8]))), id)
end
if redis.call("HEXISTS", KEYS[4], ARGV[1]) == 1 then
  redis.call("HSET", KEYS[3], "idle", string.format("%.0f", now))
end
return now
