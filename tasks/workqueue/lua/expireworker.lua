-- Ends the leases of a worker that has died, as if they had run out.
-- KEYS: common.lua. ARGV: worker, attempt limit, note.
-- Returns how many.
local moved, offset = 0, 0
while true do
  local ids = redis.call("ZRANGE", LEASED, offset, offset + 499)
  if #ids == 0 then break end
  local workers = redis.call("HMGET", WORKER, unpack(ids))
  for i, id in ipairs(ids) do
    if workers[i] == ARGV[1] then
      fail(id, load(id), ARGV[3], true, tonumber(ARGV[2]), 0)
      moved = moved + 1
    else
      offset = offset + 1
    end
  end
end
finish(moved)
return moved
