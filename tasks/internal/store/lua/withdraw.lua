-- withdraw removes the ready nodes of a revoked workflow from their lists, and gives up the wake-tasks of queues that
-- have no ready nodes then.
-- KEYS as in lib
-- ARGV[1] workflow, [2] fairness key or '', [3] span of its first nodes, which a ring may have (see enqueue), or '',
-- then the lanes of the workflow
-- returns {queue, generation, …} of the wake-tasks that are not needed any more
local id, key, out = ARGV[1], ARGV[2], {}
if key == '' then key = id end
for i = 4, #ARGV do
  local lane = ARGV[i]
  local list = P .. 'ready:' .. lane .. ':' .. key
  local n, kept = 0, {}
  for _, el in ipairs(redis.call('LRANGE', list, 0, -1)) do
    if string.sub(el, 1, #id + 1) == id .. '/' then n = n + size(el) else kept[#kept + 1] = el end
  end
  if n > 0 then
    redis.call('DEL', list)
    bulk('RPUSH', list, kept)
    if #kept == 0 then redis.call('LREM', P .. 'ring:' .. lane, 1, key) end
  end
  local first = id .. '/' .. ARGV[3]
  if redis.call('LREM', P .. 'ring:' .. lane, 1, first) == 1 then n = n + size(first) end
  deepen(lane, -n)
  local q = string.sub(lane, 3)
  local h = redis.call('HMGET', P .. 'wake:' .. q, 'p', 'g')
  if n > 0 and h[1] and not waiting(q) then
    redis.call('HDEL', P .. 'wake:' .. q, 'p')
    redis.call('HINCRBY', P .. 'wake:' .. q, 'g', 1)
    out[#out + 1] = q
    out[#out + 1] = h[2] or '0'
  end
end
saveDepth()
return out
