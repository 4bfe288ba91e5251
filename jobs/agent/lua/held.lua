-- Counts the assignments that agents hold.
-- KEYS: held, one for each agent. ARGV: none.
-- Returns a list of the numbers.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local out = {}
for i, key in ipairs(KEYS) do
  out[i] = redis.call("ZCOUNT", key, "(" .. string.format("%.0f", now), "+inf")
end
return out
