-- reap ends batches of a worker and makes their nodes ready again.
-- KEYS as in lib
-- ARGV[1] worker, [2] 1 if it has died, which is counted for its nodes, else 0, [3] its queues whose taken entries go back to their
-- rings, separated by spaces, then ids of batches; none means all
-- returns the number of elements and entries put back
local lease, n = P .. 'lease:' .. ARGV[1], 0
local dead = ARGV[2] == '1' and ARGV[1] or nil
local ids = {unpack(ARGV, 4)}
if #ids == 0 then
  ids = redis.call('HKEYS', lease)
  table.sort(ids)
end
for _, id in ipairs(ids) do
  local value = redis.call('HGET', lease, id)
  if value then
    redis.call('HDEL', lease, id)
    n = n + giveBack(value, dead)
  end
end
for q in string.gmatch(ARGV[3], '%S+') do
  local taker = q .. ':' .. ARGV[1]
  local entries = redis.call('LRANGE', P .. 'taken:' .. taker, 0, -1)
  for i = #entries, 1, -1 do
    local wf, deaths = string.match(entries[i], '^([^@/=+]+)@?(%d*)$')
    if wf and dead and string.sub(redis.call('HGET', P .. 'w:' .. wf, '0') or '', 1, 1) == GIVEN then
      deaths = (tonumber(deaths) or 0) + 1
      remember(P .. 'w:' .. wf, '0', '|' .. whole(now) .. '|' .. whole(now) .. '|lost|' .. ARGV[1] .. '|["lost","the worker died"]')
      entries[i] = wf .. '@' .. whole(deaths)
    end
    redis.call('LPUSH', P .. 'ring:' .. q, entries[i])
  end
  redis.call('DEL', P .. 'taken:' .. taker)
  redis.call('SREM', P .. 'takers', taker)
  n = n + #entries
end
if redis.call('EXISTS', lease) == 0 then redis.call('SREM', P .. 'holders', ARGV[1]) end
saveDepth()
return n
