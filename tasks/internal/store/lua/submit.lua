-- submit stores workflows and releases what can run at once.
-- KEYS and ARGV as in lib; of a single item KEYS[4] can be the unique key. An item: [1..5], [6] graph,
-- [7] tasks, [8] virtual nodes, [9] unix ms from which on it is late, or '', [10] unique ttl ms or '',
-- [11] ms until someone else looks after those that the sender hands over, [12] number of literal inputs k,
-- [13] number h of nodes that the sender hands over, [14] number of roots r, then k times node, input;
-- h times node; r times node, delay, lim
-- returns per item what close returns, {'dup', id} or {'late'}
local f
return each(function(i, p)
  wf, W, p = KEYS[2 + i], ARGV[p], p + 5
  if ARGV[p + 3] ~= '' and now >= tonumber(ARGV[p + 3]) then return {'late'} end
  if redis.call('EXISTS', wf) == 1 then return {'dup', W} end
  if ARGV[p + 4] ~= '' then
    local other = redis.call('GET', KEYS[4])
    if other then
      local key = string.sub(wf, 1, #wf - #W) .. other
      if redis.call('EXISTS', key) == 1 and redis.call('PTTL', key) < 0 then return {'dup', other} end
    end
    redis.call('SET', KEYS[4], W, 'PX', ARGV[p + 4])
  end
  local k, h, r = int(ARGV[p + 6]), int(ARGV[p + 7]), int(ARGV[p + 8])
  local look = whole(now + int(ARGV[p + 5]))
  local fields = {'g', ARGV[p], 'n', ARGV[p + 1]}
  if ARGV[p + 2] ~= '0' then
    fields[5], fields[6] = 'vn', ARGV[p + 2]
  end
  local a = p + 9
  for j = a, a + 2 * k - 2, 2 do
    fields[#fields + 1] = 'a' .. ARGV[j]
    fields[#fields + 1] = ARGV[j + 1]
  end
  a = a + 2 * k
  for j = a, a + h - 1 do note(look, ARGV[j]) end
  if r == 0 then
    bulk('HSET', wf, fields)
    return '0' .. date
  end
  a = a + h
  f = f or flow()
  use(i, p - 5)
  puts = fields
  for j = a, a + 3 * r - 3, 3 do f.release(ARGV[j], ARGV[j + 1], ARGV[j + 2]) end
  return close({ARGV[p + 1], '0', ARGV[p + 2], '0', '0', '0'})
end)
