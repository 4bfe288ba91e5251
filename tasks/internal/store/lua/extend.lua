-- extend adds the members of a map, whose inputs are stored already, and releases them.
-- KEYS[1..3] as in lib
-- ARGV[1..5] as in lib, [6] map node, [7] members, [8] delay, [9] lim, [10] number of joins over the
-- members, then per join: node, need, delay, lim
-- returns {'ok', ready, timed, ended} or {'done'}
if redis.call('EXISTS', wf) == 0 or redis.call('HEXISTS', wf, 'x') == 1 then return {'done'} end
local node, m = ARGV[6], tonumber(ARGV[7])
if redis.call('HEXISTS', wf, node) == 1 or redis.call('HEXISTS', wf, 'm' .. node) == 1 then return {'done'} end
redis.call('HSET', wf, node, 'E', 'm' .. node, m)
redis.call('ZREM', agenda, W .. '/' .. node)
if m > 0 then
  redis.call('HINCRBY', wf, 'n', m)
  redis.call('HINCRBY', wf, 'ct', m)
  for i = 0, m - 1 do release(node .. '.' .. i, ARGV[8], ARGV[9]) end
else
  emit(node, '')
end
local a = 11
for i = 1, tonumber(ARGV[10]) do
  local c = tonumber(redis.call('HGET', wf, 'j' .. ARGV[a]) or 0)
  if c >= wanted(ARGV[a + 1]) then
    redis.call('HDEL', wf, 'j' .. ARGV[a])
    ripen(ARGV[a], ARGV[a + 2], ARGV[a + 3])
  end
  a = a + 4
end
return {'ok', ready, string.format('%d', timed), close()}
