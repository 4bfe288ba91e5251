-- extend adds the members of a map, whose inputs are stored already, and releases them.
-- KEYS and ARGV as in lib. An item: [1..5], [6] map node, [7] members, [8] delay, [9] lim, [10] number of
-- joins over the members, then per join: node, need, delay, lim
-- returns per item {moved} or {'done'}
local f = flow()
return each(function(i, p)
  p = use(i, p)
  local have = redis.call('HMGET', wf, 'n', 'z', 'vn', 'vz', 'ct', 'cc', 'x')
  if not have[1] or have[7] then return {'done'} end
  local node, m = ARGV[p], tonumber(ARGV[p + 1])
  if f.record(node) or redis.call('HEXISTS', wf, 'm' .. node) == 1 then return {'done'} end
  f.put(node, 'E')
  redis.call('HSET', wf, 'm' .. node, m)
  redis.call('ZREM', agenda, W .. '/' .. node)
  if m > 0 then
    f.add('n', m)
    f.add('ct', m)
    for j = 0, m - 1 do f.release(node .. '.' .. j, ARGV[p + 2], ARGV[p + 3]) end
  else
    f.emit(node, '')
  end
  local a = p + 5
  for _ = 1, tonumber(ARGV[p + 4]) do
    local c = tonumber(redis.call('HGET', wf, 'j' .. ARGV[a]) or 0)
    if c >= f.wanted(ARGV[a + 1]) then
      redis.call('HDEL', wf, 'j' .. ARGV[a])
      f.ripen(ARGV[a], ARGV[a + 2], ARGV[a + 3])
    end
    a = a + 4
  end
  return {close(have)}
end)
