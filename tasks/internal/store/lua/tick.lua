-- tick records the result of the leader of an entry for a tick.
-- KEYS[1] entry, KEYS[2] its requested ticks
-- ARGV[1] token of the leader, [2] tick unix ms, [3] next tick unix ms, [4] workflow sent or '',
-- [5] ticks that were missed, [6] error or '', [7] the request, if the tick was requested, or '', [8] number of ticks that
-- may be queued, to queue the tick, or 0, [9] ms until the requests expire
-- returns {} if another scheduler leads the entry now, or {first requested tick or ''}
local e, due = KEYS[1], KEYS[2]
local had = redis.call('HMGET', e, 'token', 'last', 'ran', 'paused')
if had[1] ~= ARGV[1] then return {} end
local at, missed, cause = tonumber(ARGV[2]), tonumber(ARGV[5]), ARGV[6]
redis.call('HSET', e, 'next', ARGV[3])
if ARGV[7] ~= '' then
  redis.call('ZREM', due, ARGV[7])
elseif at > tonumber(had[2] or '0') then -- else the entry was resumed since
  redis.call('HSET', e, 'last', ARGV[2])
end
if ARGV[8] ~= '0' then
  if had[4] then -- since the leader read the entry
    missed = missed + 1
    cause = 'the entry was paused'
  elseif redis.call('ZCARD', due) < tonumber(ARGV[8]) then
    redis.call('ZADD', due, at, 'q' .. ARGV[2])
    redis.call('PEXPIRE', due, ARGV[9])
  else
    missed = missed + 1
    cause = 'an earlier workflow is still running, and another tick is queued'
  end
end
if ARGV[4] ~= '' then
  redis.call('HSET', e, 'workflow', ARGV[4])
  if at > tonumber(had[3] or '0') then redis.call('HSET', e, 'ran', ARGV[2]) end
  redis.call('HINCRBY', e, 'sent', 1)
end
if missed > 0 then redis.call('HINCRBY', e, 'missed', missed) end
if cause ~= '' then
  redis.call('HSET', e, 'error', cause)
else
  redis.call('HDEL', e, 'error')
end
return {redis.call('ZRANGE', due, 0, 0)[1] or ''}
