-- Seals a queue or ends that, and ends leases: their items keep their place, no
-- attempt is counted, and the leases are lost.
-- KEYS: common.lua. ARGV: sealed 0|1, how many leases to end at most.
-- Returns how many leases are left: call it again while there are any. Until
-- then the queue stays sealed.
if ARGV[1] == "1" then
  -- A version that does not know of this must not change such a queue.
  redis.call("HSET", META, "v", 2, "sealed", 1)
elseif not sealed then
  return 0
end
local ids = redis.call("ZRANGE", LEASED, 0, tonumber(ARGV[2]) - 1)
local moved = 0
for _, id in ipairs(ids) do
  local r = loadLeased(id)
  if r then
    r.token = 0
    putBack(id, r)
    moved = moved + 1
  end
end
freed = false
local left = redis.call("ZCARD", LEASED)
if ARGV[1] == "0" and left == 0 then
  redis.call("HDEL", META, "sealed")
  freed = true
end
finish(moved)
return left
