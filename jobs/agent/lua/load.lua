-- Reads an assignment. A call of the agent that holds it is a sign of life, and
-- may say what it has used: that is stored before the work is settled, so that
-- it is counted whichever process dies.
-- KEYS: record of the assignment, agents, seen. ARGV: the agent that calls, or
-- "" for none, its fence, its usage so far or "" for no change.
-- Returns {unix ms of now, then the fields and values of the record}, or {} if
-- there is no such assignment.
local fields = redis.call("HGETALL", KEYS[1])
if #fields == 0 then return {} end
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local at = redis.call("HMGET", KEYS[1], "agent", "state", "fence", "deadline")
local mine = ARGV[1] ~= "" and ARGV[1] == at[1]
if mine and redis.call("HEXISTS", KEYS[2], ARGV[1]) == 1 then
  redis.call("ZADD", KEYS[3], string.format("%.0f", now), ARGV[1])
end
if mine and ARGV[3] ~= "" and at[2] == "open" and at[3] == ARGV[2] and now < (tonumber(at[4] or "") or 0) then
  redis.call("HSET", KEYS[1], "usage", ARGV[3])
end
local out = { string.format("%.0f", now) }
for i, v in ipairs(fields) do out[i + 1] = v end
return out
