-- Removes members of the ready set that are not those of its items' records.
-- KEYS: common.lua. ARGV: members.
-- Returns how many were removed.
local removed, lanes = 0, {}
for _, m in ipairs(ARGV) do
  local at = string.find(m, "\0", 1, true) or #m + 1
  local lane, id = string.sub(m, 1, at - 1), string.sub(m, at + 18)
  local r = load(id)
  if not r or r.state ~= "q" or member(id, r) ~= m then
    removed = removed + redis.call("ZREM", READY, m)
    lanes[lane] = true
  end
end
for lane in pairs(lanes) do fixLane(lane) end
finish(removed)
return removed
