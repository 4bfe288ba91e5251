-- Counts the outputs that are not acknowledged.
-- KEYS: common.lua. ARGV: none.
-- Returns {entries, bytes of their data}.
local n = redis.call("XLEN", OUT)
if n == 0 then return { 0, 0 } end
local before = 0
local fields = redis.call("XRANGE", OUT, "-", "+", "COUNT", 1)[1][2]
for i = 1, #fields, 2 do
  if fields[i] == "before" then before = number(fields[i + 1]) end
end
return { n, math.max(0, number(redis.call("HGET", META, "out_bytes")) - before) }
