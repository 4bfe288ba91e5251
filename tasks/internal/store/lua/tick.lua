-- tick decides about a tick of a schedule. Behind the parts of the script fire it sends the workflow of the tick, too.
-- KEYS as in lib
-- ARGV: of fire, those of submit; then 8 others: [1] name, [2] the tick: as in the field next, or as a requested one, [3] the next tick
-- after it (unix ms), or '' for a requested tick, which is kept if [4] is ''; [4] due time of that next tick, [5] number of missed ticks,
-- [6] cause or '', [7] ticks to request, separated by spaces, [8] ms until requested ticks are looked at
-- returns {'ok', todo or false, ms until something is due or false}; {'stale'} if it was decided before, deleted or paused; or a result
-- of submit
local a = #ARGV - 7
local name, tick, after, due = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]
local e, requests = P .. 'schedule:e:' .. name, P .. 'schedule:due:' .. name
local requested = string.match(tick, '^%a(%d+)')
local had = redis.call('HMGET', e, 'next', 'paused', 'ran')
local valid = had[1] == tick and not had[2]
if requested then valid = had[1] and redis.call('ZSCORE', requests, tick) end
if not valid then
  arrange(name, now)
  return {'stale'}
end
local out = {'ok', false}
if submit then
  out = submit()
  if out[1] ~= 'ok' then return out end
  redis.call('HSET', e, 'workflow', string.match(ARGV[1], '^[^~]+'))
  redis.call('HINCRBY', e, 'sent', 1)
  local at = requested or tick
  if tonumber(at) > tonumber(had[3] or '0') then redis.call('HSET', e, 'ran', at) end
end
if after ~= '' then
  redis.call('HSET', e, 'next', after, 'due', due)
elseif due ~= '' then
  redis.call('ZREM', requests, tick)
end
for at in string.gmatch(ARGV[a + 6], '%d+') do redis.call('ZADD', requests, at, 'b' .. at) end
if ARGV[a + 4] ~= '0' then redis.call('HINCRBY', e, 'missed', ARGV[a + 4]) end
if ARGV[a + 5] ~= '' then
  redis.call('HSET', e, 'error', ARGV[a + 5])
elseif submit then
  redis.call('HDEL', e, 'error')
end
out[3] = arrange(name, now + ARGV[a + 7])
return out
