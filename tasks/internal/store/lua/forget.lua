-- forget deletes the data of queues that have no ready nodes, are not paused and were not used for some time.
-- KEYS as in lib
-- ARGV[1] that time (ms)
-- returns their names
local gone = {}
for _, q in ipairs(redis.call('ZRANGEBYSCORE', P .. 'queues', '-inf', whole(math.floor((now - ARGV[1]) / 3600000)))) do
  if redis.call('EXISTS', P .. 'ring:' .. q) == 0 and redis.call('HEXISTS', P .. 'queue:' .. q, 'paused') == 0 then
    redis.call('DEL', P .. 'queue:' .. q)
    redis.call('ZREM', P .. 'queues', q)
    gone[#gone + 1] = q
  end
end
return gone
