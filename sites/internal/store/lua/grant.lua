-- Counts a page against the limits of its job, once per page however often the script runs.
-- KEYS[1]  SpentKey
-- ARGV[1]  item: the page
-- ARGV[2]  records of the page
-- ARGV[3]  bytes of the page
-- ARGV[4]  most records of the job; 0 is no limit
-- ARGV[5]  milliseconds until the key expires
-- Returns how many of the page's records may be kept.
local item = 'page ' .. ARGV[1]
local granted = tonumber(redis.call('HGET', KEYS[1], item) or '-1')

if granted < 0 then
  granted = tonumber(ARGV[2])
  local most = tonumber(ARGV[4])
  if most > 0 then
    local before = tonumber(redis.call('HGET', KEYS[1], 'records') or '0')
    granted = math.max(math.min(granted, most - before), 0)
  end
  redis.call('HSET', KEYS[1], item, granted)
  redis.call('HINCRBY', KEYS[1], 'records', granted)
  redis.call('HINCRBY', KEYS[1], 'bytes', ARGV[3])
end
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return math.min(granted, tonumber(ARGV[2]))
