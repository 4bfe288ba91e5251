-- Reads an assignment. A call of the agent that holds it is a sign of life.
-- KEYS: record of the assignment, agents, seen. ARGV: the agent that calls, or
-- "" for none.
-- Returns {unix ms of now, then the fields and values of the record}, or {} if
-- there is no such assignment.
local fields = redis.call("HGETALL", KEYS[1])
if #fields == 0 then return {} end
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
if ARGV[1] ~= "" and ARGV[1] == redis.call("HGET", KEYS[1], "agent") and redis.call("HEXISTS", KEYS[2], ARGV[1]) == 1 then
  redis.call("ZADD", KEYS[3], string.format("%.0f", now), ARGV[1])
end
local out = { string.format("%.0f", now) }
for i, v in ipairs(fields) do out[i + 1] = v end
return out
