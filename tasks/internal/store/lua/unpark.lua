-- Shared by the scripts that make parked nodes ready; appended to lib.
-- KEYS as in lib
-- ARGV none
-- returns nothing: it defines unpark

-- unpark puts parked nodes of a workflow on their ready lists, and deletes the key that they are in. key is its fairness key.
local function unpark(from, nodes, key)
  local lanes, els = {}, {}
  for _, parked in ipairs(nodes) do
    local lane, el = string.match(parked, '^(%S+) (%S+)')
    if not els[lane] then
      lanes[#lanes + 1] = lane
      els[lane] = {}
    end
    table.insert(els[lane], el)
  end
  redis.call('DEL', from)
  for _, lane in ipairs(lanes) do
    push(lane, key, els[lane])
  end
end
