-- forget deletes the wake hash of a queue without ready nodes that was not used for some time.
-- KEYS as in lib
-- ARGV[1] queue, [2] that time (ms)
-- returns 1 if the hash does not exist any more, else 0
local k = P .. 'wake:' .. ARGV[1]
if waiting(ARGV[1]) then return 0 end
if redis.call('EXISTS', k) == 0 then
  redis.call('SREM', P .. 'queues', ARGV[1])
  return 1
end
local h = redis.call('HMGET', k, 'pending', 'taken')
local used = math.max(tonumber(h[1] or '') or 0, tonumber(h[2] or '') or 0)
if used == 0 then redis.call('HSET', k, 'taken', whole(now)) end
if used == 0 or now - used < tonumber(ARGV[2]) then return 0 end
redis.call('DEL', k, P .. 'wakeup:' .. ARGV[1])
redis.call('SREM', P .. 'queues', ARGV[1])
return 1
