-- Reads the counters of the lanes.
-- KEYS: common.lua. ARGV: none.
-- Returns {counted 0|1, then per counter its state, lane, items}. A queue
-- without items counts as counted.
if not byLane then return { 1 - redis.call("EXISTS", REC) } end
local out = { 1 }
local counts = redis.call("HGETALL", COUNTS)
for i = 1, #counts, 2 do
  local at = string.find(counts[i], "\0", 1, true)
  if at then
    out[#out + 1] = string.sub(counts[i], 1, at - 1)
    out[#out + 1] = string.sub(counts[i], at + 1)
    out[#out + 1] = number(counts[i + 1])
  end
end
return out
