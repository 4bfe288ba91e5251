-- Returns items that are leased to a worker that does not know of it.
-- KEYS: common.lua. ARGV: worker, then the tokens of the leases it knows.
-- Returns how many items were returned; 0 in a sealed queue.
if sealed then return 0 end
local known = {}
for i = 2, #ARGV do known[tonumber(ARGV[i])] = true end
local moved, offset = 0, 0
while true do
  local ids = redis.call("ZRANGE", LEASED, offset, offset + 499)
  if #ids == 0 then break end
  for _, id in ipairs(ids) do
    local r = loadLeased(id)
    if r and r.worker == ARGV[1] and not known[r.token] then
      putBack(id, r)
      moved = moved + 1
    elseif r then
      offset = offset + 1
    end
  end
end
finish(moved)
return moved
