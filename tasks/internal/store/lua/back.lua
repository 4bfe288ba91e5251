-- back gives tasks back that were taken out of a queue of asynq and not begun: they are next in line.
-- KEYS[1] pending, [2] bell, [3] active, [4] lease, [5..] task hashes, one for each item
-- ARGV[1] channel, [2] message that wakes, [3] unix ns, [4] number of items, then per item: number of its
-- arguments, task id
-- returns per item 1, or 0 if it was not active
local out, p = {}, 5
for i = 1, tonumber(ARGV[4]) do
  local id = ARGV[p + 1]
  out[i] = redis.call('LREM', KEYS[3], '-1', id)
  if out[i] == 1 then
    redis.call('ZREM', KEYS[4], id)
    redis.call('RPUSH', KEYS[1], id)
    redis.call('HSET', KEYS[4 + i], 'state', 'pending', 'pending_since', ARGV[3])
  end
  p = p + 1 + tonumber(ARGV[p])
end
if redis.call('DEL', KEYS[2]) == 1 then redis.call('PUBLISH', ARGV[1], ARGV[2]) end
return out
