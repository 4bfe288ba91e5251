-- forget deletes the hash of a queue without ready nodes from which nothing was taken for some time.
-- KEYS as in lib
-- ARGV[1] queue, [2] that time (ms)
-- returns 1 if the hash does not exist any more, else 0
local k = P .. 'queue:' .. ARGV[1]
if redis.call('EXISTS', P .. 'ring:' .. ARGV[1]) == 1 then return 0 end
local taken = redis.call('HGET', k, 'taken')
if taken and now - taken < tonumber(ARGV[2]) then return 0 end
if not taken and redis.call('SISMEMBER', P .. 'queues', ARGV[1]) == 1 then
  redis.call('HSET', k, 'taken', whole(now))
  return 0
end
redis.call('DEL', k)
redis.call('SREM', P .. 'queues', ARGV[1])
return 1
