-- withdraw removes ready nodes of a revoked workflow from their lists, and the wake-ups of queues that have no ready nodes
-- then. On the list of a fairness key that other workflows have, too, it searches for the first nodes
-- only: turn drops the others when it takes them.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] fairness key or '', [3] span of its first nodes, or '', then the lanes of the
-- workflow
-- returns 1
local ref, key = ARGV[1], ARGV[2]
local first = ref .. '/' .. ARGV[3]
for _, lane in ipairs({unpack(ARGV, 4)}) do
  local n = 0
  if key == '' then
    local list = P .. 'ready:' .. lane .. ':' .. ref
    for _, el in ipairs(redis.call('LRANGE', list, 0, -1)) do n = n + size(el) end
    if n > 0 then
      redis.call('DEL', list)
      redis.call('LREM', P .. 'ring:' .. lane, 1, ref)
    end
  else
    local list = P .. 'ready:' .. lane .. ':' .. key
    if redis.call('LREM', list, 1, first) == 1 then
      n = size(first)
      if redis.call('EXISTS', list) == 0 then redis.call('LREM', P .. 'ring:' .. lane, 1, key) end
    end
  end
  if redis.call('LREM', P .. 'ring:' .. lane, 1, first) == 1 then n = n + size(first) end
  deepen(lane, -n)
  local q = string.sub(lane, 3)
  local pending = redis.call('HGET', P .. 'wake:' .. q, 'pending')
  if n > 0 and pending and pending ~= '' and not waiting(q) then
    redis.call('HDEL', P .. 'wake:' .. q, 'pending')
    redis.call('HINCRBY', P .. 'wake:' .. q, 'generation', 1)
    redis.call('DEL', P .. 'wakeup:' .. q)
  end
end
saveDepth()
return 1
