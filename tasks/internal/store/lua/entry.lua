-- entry changes an entry of the schedule for an operator.
-- KEYS[1] entry, KEYS[2] its requested ticks, KEYS[3] names of entries
-- ARGV[1] pause, resume, trigger, backfill or delete, [2] name of the entry, [3] most requests, [4] ms until they expire; for a backfill,
-- then the ticks, unix ms
-- returns {'ok', tick of a trigger, or number of ticks}, {'unknown'}, {'full'}, or {'led', scheduler} for the removal of an
-- entry that a scheduler has
local e, due, op = KEYS[1], KEYS[2], ARGV[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function int(n) return string.format('%d', n) end
if redis.call('EXISTS', e) == 0 then return {'unknown'} end
if op == 'pause' then
  redis.call('HSETNX', e, 'paused', int(now))
  for _, tick in ipairs(redis.call('ZRANGE', due, 0, -1)) do
    if string.sub(tick, 1, 1) == 'q' then
      redis.call('ZREM', due, tick)
      redis.call('HINCRBY', e, 'missed', 1)
      redis.call('HSET', e, 'error', 'the entry was paused')
    end
  end
elseif op == 'resume' then
  if redis.call('HDEL', e, 'paused') == 1 then redis.call('HSET', e, 'last', int(now)) end
elseif op == 'delete' then
  local had = redis.call('HMGET', e, 'until', 'holder')
  if tonumber(had[1] or '0') > now then return {'led', had[2]} end
  redis.call('DEL', e, due)
  redis.call('ZREM', KEYS[3], ARGV[2])
else
  local ticks = op == 'trigger' and 1 or #ARGV - 4
  if redis.call('ZCARD', due) + ticks > tonumber(ARGV[3]) then return {'full'} end
  if op == 'trigger' then
    while redis.call('ZADD', due, 'NX', now, 't' .. int(now)) == 0 do now = now + 1 end
  end
  for i = 5, #ARGV do redis.call('ZADD', due, ARGV[i], 'b' .. ARGV[i]) end
  redis.call('PEXPIRE', due, ARGV[4])
  return {'ok', op == 'trigger' and int(now) or int(ticks)}
end
return {'ok', '0'}
