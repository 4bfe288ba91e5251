-- lead makes a scheduler the leader of the entries that have no other leader, or keeps it their leader. The
-- next leader of an entry gets a greater token.
-- KEYS[1] names of entries by when they are forgotten, KEYS[2..] entries
-- ARGV[1] scheduler, [2] lease ms, [3] ms until an entry without scheduler is forgotten,
-- then for each entry: name, spec, next tick unix ms, policy for overlapping ticks or ''
-- returns {now, then for each entry: token or 0, end of the lease, tick up to which all is decided, 1 if it is paused, first requested tick or '',
-- workflow of the last tick or ''}
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function int(n) return string.format('%d', n) end
local out = {int(now)}
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
for i = 2, #KEYS do
  local e, a = KEYS[i], 4 + 4 * (i - 2)
  local due = string.gsub(KEYS[1], 'names$', 'due:') .. ARGV[a]
  local had = redis.call('HMGET', e, 'holder', 'until', 'token', 'last', 'lease', 'paused', 'workflow')
  local ends, token = tonumber(had[2] or '0'), had[3]
  -- After the clock was set back, a lease lasts no longer than its original duration, and repeated ticks are decided
  -- again: workflows that were already sent are recognised by their ids.
  if had[5] and ends > now + tonumber(had[5]) then
    ends = now + tonumber(had[5])
    redis.call('HSET', e, 'until', int(ends))
  end
  if had[4] and tonumber(had[4]) > now + 1000 then
    had[4] = int(now)
    redis.call('HSET', e, 'last', had[4])
  end
  if ends > now and had[1] ~= ARGV[1] then
    token = '0'
  else
    if ends <= now or not token then token = int(redis.call('HINCRBY', e, 'token', 1)) end
    ends = now + tonumber(ARGV[2])
    redis.call('HSET', e, 'holder', ARGV[1], 'until', int(ends), 'lease', ARGV[2], 'spec', ARGV[a + 1], 'next', ARGV[a + 2], 'overlap', ARGV[a + 3])
    if not had[4] then
      redis.call('HSET', e, 'last', int(now))
      had[4] = int(now)
    end
    redis.call('PEXPIRE', e, ARGV[3])
    redis.call('PEXPIRE', due, ARGV[3])
    redis.call('ZADD', KEYS[1], int(now + tonumber(ARGV[3])), ARGV[a])
  end
  local function add(value) out[#out + 1] = value end
  add(token)
  add(int(ends))
  add(had[4])
  add(had[6] and '1' or '0')
  add(redis.call('ZRANGE', due, 0, 0)[1] or '')
  add(had[7] or '')
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return out
