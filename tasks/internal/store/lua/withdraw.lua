-- withdraw removes ready nodes of a revoked workflow from their lists. On the list of a fairness key that other workflows have, too,
-- it searches for the first nodes only: turn drops the others when it takes them.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] span of its first nodes, or '', then the lanes of the workflow
-- returns 1
local ref, key = ARGV[1], redis.call('HGET', P .. 'w:' .. ARGV[1], FAIRNESS)
local first = ref .. '/' .. ARGV[2]
for _, lane in ipairs({unpack(ARGV, 3)}) do
  local ring = P .. 'ring:' .. string.sub(lane, 3)
  local list, n = P .. 'ready:' .. lane .. ':' .. (key or ref), 0
  if not key then
    for _, el in ipairs(redis.call('LRANGE', list, 0, -1)) do n = n + size(el) end
    if n > 0 then redis.call('DEL', list) end
  elseif redis.call('LREM', list, 1, first) == 1 then
    n = size(first)
  end
  if n > 0 and redis.call('EXISTS', list) == 0 then unlist(lane, key or ref) end
  local normal = string.sub(lane, 1, 1) == 'n'
  if normal then redis.call('LREM', ring, 1, ref) end
  if normal and redis.call('LREM', ring, 1, first) == 1 then
    n = n + size(first)
    deepen('k:' .. string.sub(lane, 3), -1)
  end
  deepen(lane, -n)
end
saveDepth()
return 1
