-- schedule changes a schedule.
-- KEYS as in lib
-- ARGV[1] put, delete, pause, resume, trigger or backfill, [2] name, then
--   put: [3] group or '', [4] next tick (unix ms) and [5] its due time, unless the spec and the jitter are unchanged; [6] work; then
--     fields and values, of which the first are spec and jitter
--   delete: [3] group that it must be of, or ''
--   resume: [3] spec and [4] jitter of which [5] is the next tick and [6] its due time
--   trigger and backfill: [3] most requested ticks; then the name of the call of a trigger, or the ticks of a backfill, unix ms
-- returns {'ok', tick of a trigger or 0, ms until something is due or false}, {'unknown'}, {'full'}, {'group', group that it is of}, or
-- {'changed'} if it has another spec or jitter
local op, name = ARGV[1], ARGV[2]
local e, due, work = P .. 'schedule:e:' .. name, P .. 'schedule:due:' .. name, P .. 'schedule:work:' .. name
local had = redis.call('HMGET', e, 'spec', 'jitter', 'next', 'group', 'trigger')
local tick = '0'
if op == 'put' then
  local fields, group = {}, ARGV[3]
  local function set(...)
    for _, v in ipairs({...}) do fields[#fields + 1] = v end
  end
  if group ~= '' and had[4] and had[4] ~= group then return {'group', had[4]} end
  set(unpack(ARGV, 7))
  if group ~= '' then set('group', group) end
  local earlier = had[3] and tonumber(ARGV[4]) < tonumber(had[3]) and tonumber(ARGV[4]) > now -- the clock was set back
  if had[1] ~= ARGV[8] or had[2] ~= ARGV[10] or earlier then set('next', ARGV[4], 'due', ARGV[5]) end
  redis.call('SET', work, ARGV[6]) -- the first write: a full Redis refuses it, and nothing was stored
  bulk('HSET', e, fields)
  redis.call('ZADD', P .. 'schedule:names', 0, name)
  if group ~= '' then redis.call('SADD', P .. 'schedule:group:' .. group, name) end
elseif not had[1] then
  return {'unknown'}
elseif op == 'delete' then
  if ARGV[3] ~= '' and had[4] ~= ARGV[3] then return {'ok', '0', false} end
  if had[4] then redis.call('SREM', P .. 'schedule:group:' .. had[4], name) end
  redis.call('DEL', e, due, work)
  redis.call('ZREM', P .. 'schedule:names', name)
elseif op == 'pause' then
  redis.call('HSETNX', e, 'paused', whole(now))
elseif op == 'resume' then
  if had[1] ~= ARGV[3] or had[2] ~= ARGV[4] then return {'changed'} end
  local valid = tonumber(ARGV[5]) > math.min(now, tonumber(had[3])) -- unless it was computed long ago
  if redis.call('HDEL', e, 'paused') == 1 and valid then redis.call('HSET', e, 'next', ARGV[5], 'due', ARGV[6]) end
elseif op == 'trigger' and string.match(had[5] or '', '^%S+') == ARGV[4] then -- the reply was lost
  tick = string.match(had[5], '%d+$')
elseif redis.call('ZCARD', due) + #ARGV - 3 > tonumber(ARGV[3]) then
  return {'full'}
elseif op == 'trigger' then
  local at = now
  while redis.call('ZADD', due, 'NX', whole(at), 't' .. whole(at)) == 0 do at = at + 1 end
  tick = whole(at)
  redis.call('HSET', e, 'trigger', ARGV[4] .. ' ' .. tick)
else
  for i = 4, #ARGV do redis.call('ZADD', due, ARGV[i], 'b' .. ARGV[i]) end
end
return {'ok', tick, arrange(name, now)}
