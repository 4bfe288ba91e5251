-- Derives the delay between requests from the response times of a site, like Scrapy's AutoThrottle: it rises at once
-- and falls slowly, and errors never lower it. Only the time beyond the shortest recent one is used, to exclude the
-- time that a proxy takes.
-- KEYS[1]  throttleKey
-- ARGV[1]  microseconds from a request to the head of its response
-- ARGV[2]  1 if the response was a page, else 0
-- ARGV[3]  the longest delay, in microseconds
-- Returns the delay, in microseconds.
local latency = tonumber(ARGV[1])
local base = tonumber(redis.call('HGET', KEYS[1], 'base') or '0') or 0
local value = tonumber(redis.call('HGET', KEYS[1], 'delay') or '0') or 0
if base == 0 or latency < base then
  base = latency
else
  base = base + base / 100 -- so that one fast response is forgotten after some hundred
end
local target = math.max(latency - base, 0)
local new = math.min(math.max(target, (value + target) / 2), tonumber(ARGV[3]))
if ARGV[2] == '1' or new > value then
  value = new
end
redis.call('HSET', KEYS[1], 'base', string.format('%.0f', base), 'delay', string.format('%.0f', value))
redis.call('PEXPIRE', KEYS[1], 3600000)
return math.floor(value)
