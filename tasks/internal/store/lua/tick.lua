-- tick records what the leader of an entry did about its ticks.
-- KEYS[1] entry
-- ARGV[1] token of the leader, [2] tick unix ms, [3] next tick unix ms, [4] workflow sent or '',
-- [5] ticks that were missed, [6] error or ''
-- returns 1, or 0 when someone else leads the entry now
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'last', ARGV[2], 'next', ARGV[3])
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], 'ran', ARGV[2], 'workflow', ARGV[4])
  redis.call('HINCRBY', KEYS[1], 'sent', 1)
end
if ARGV[5] ~= '0' then redis.call('HINCRBY', KEYS[1], 'missed', ARGV[5]) end
if ARGV[6] ~= '' then
  redis.call('HSET', KEYS[1], 'error', ARGV[6])
else
  redis.call('HDEL', KEYS[1], 'error')
end
return 1
