-- Moves proxies from the pool to the archive, and deletes proxies archived more than a day ago.
-- KEYS[1] records  [2] health of all sites  [3] archive  [4] archived
-- ARGV[1] now, unix ms; then ids
-- Returns the number of removed proxies.
local now = tonumber(ARGV[1])
local removed = 0
for i = 2, #ARGV do
  local id = ARGV[i]
  local record = redis.call('HGET', KEYS[1], id)
  if record then
    redis.call('HDEL', KEYS[1], id)
    redis.call('HDEL', KEYS[2], id)
    redis.call('ZADD', KEYS[3], now, id)
    redis.call('HSET', KEYS[4], id, record)
    removed = removed + 1
  end
end
local old = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now - 86400000, 'LIMIT', 0, 500)
for _, id in ipairs(old) do
  redis.call('ZREM', KEYS[3], id)
  redis.call('HDEL', KEYS[4], id)
end
return removed
