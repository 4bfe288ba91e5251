-- Shared by the scripts that end a pause; appended to lib.
-- KEYS as in lib
-- ARGV none
-- returns nothing: it defines unpark

-- unpark puts the nodes of a workflow that became ready during its pause on their ready lists. key is its fairness key.
local function unpark(ref, key)
  local list = P .. 'w:' .. ref .. ':paused'
  local lanes, els = {}, {}
  for _, parked in ipairs(redis.call('LRANGE', list, 0, -1)) do
    local lane, el = string.match(parked, '^(%S+) (.+)$')
    if not els[lane] then
      lanes[#lanes + 1] = lane
      els[lane] = {}
    end
    table.insert(els[lane], el)
  end
  redis.call('DEL', list)
  for _, lane in ipairs(lanes) do
    push(lane, key, els[lane])
    want(string.sub(lane, 3))
  end
end
