-- Moves proxies from the pool to the archive, and deletes those archived for more than a day.
-- KEYS[1] records  [2] changes of the records  [3] version  [4] health of all sites  [5] changes of that health  [6] archive  [7] archived
-- ARGV[1] now, unix ms  [2] entries of changes to keep; then ids
-- Returns how many were in the pool.
local now = tonumber(ARGV[1])
local removed = {}
for i = 3, #ARGV do
  local id = ARGV[i]
  local record = redis.call('HGET', KEYS[1], id)
  if record then
    redis.call('HDEL', KEYS[1], id)
    redis.call('HDEL', KEYS[4], id)
    redis.call('ZADD', KEYS[6], now, id)
    redis.call('HSET', KEYS[7], id, record)
    removed[#removed + 1] = id
  end
end
if #removed > 0 then
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], redis.call('INCR', KEYS[3]) .. '-0', 'ids', table.concat(removed, ' '))
end
local old = redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', now - 86400000, 'LIMIT', 0, 500)
for _, id in ipairs(old) do
  redis.call('ZREM', KEYS[6], id)
  redis.call('HDEL', KEYS[7], id)
end
return #removed
