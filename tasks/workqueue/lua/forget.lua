-- Removes items in a terminal state.
-- KEYS: common.lua. ARGV: ids.
-- Returns the ids that are not in the queue now.
local out, moved = {}, 0
for _, id in ipairs(ARGV) do
  local r = load(id)
  if hasEnded(r) then
    drop(id, r)
    moved = moved + 1
    r = nil
  end
  if not r then out[#out + 1] = id end
end
finish(moved)
return out
