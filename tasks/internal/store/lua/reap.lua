-- reap ends batches of a worker and makes their nodes ready again.
-- KEYS as in lib
-- ARGV[1] worker, [2] 1 if it has died, which is counted for its nodes, else 0, then ids of batches; none means all
-- returns the number of elements put back
local lease, n = P .. 'lease:' .. ARGV[1], 0
local dead = ARGV[2] == '1' and ARGV[1] or nil
local ids = {unpack(ARGV, 3)}
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
if redis.call('EXISTS', lease) == 0 then redis.call('SREM', P .. 'holders', ARGV[1]) end
saveDepth()
return n
