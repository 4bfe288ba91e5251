-- Counts the assignments that agents hold.
-- KEYS: held, one for each agent. ARGV: none.
-- Returns a list of the numbers.
local now = clock()
local out = {}
for i, key in ipairs(KEYS) do
  out[i] = redis.call("ZCOUNT", key, "(" .. string.format("%.0f", now), "+inf")
end
return out
