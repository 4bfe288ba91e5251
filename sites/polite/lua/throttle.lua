-- Makes a delay of how slowly a site answers, after Scrapy's AutoThrottle: it
-- rises at once and falls slowly, and errors never lower it. What counts is
-- the time beyond the shortest seen lately, so that the way there, be it
-- through a slow proxy, does not.
-- KEYS[1]  ThrottleKey
-- ARGV[1]  microseconds from a request to the head of its answer
-- ARGV[2]  1 when the answer was a page, else 0
-- ARGV[3]  the longest delay, in microseconds
-- Returns the delay, in microseconds.
local latency = tonumber(ARGV[1])
local base = tonumber(redis.call('HGET', KEYS[1], 'base') or '0')
local value = tonumber(redis.call('HGET', KEYS[1], 'delay') or '0')
if base == 0 or latency < base then
  base = latency
else
  base = base + base / 100 -- forgets a lucky answer after some hundred
end
local target = math.max(latency - base, 0)
local new = math.min(math.max(target, (value + target) / 2), tonumber(ARGV[3]))
if ARGV[2] == '1' or new > value then
  value = new
end
redis.call('HSET', KEYS[1], 'base', string.format('%.0f', base), 'delay', string.format('%.0f', value))
redis.call('PEXPIRE', KEYS[1], 3600000)
return math.floor(value)
