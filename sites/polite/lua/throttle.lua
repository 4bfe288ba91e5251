-- Updates the delay between requests to a site after a response.
-- KEYS[1]  throttleKey
-- ARGV[1]  microseconds from a request to the head of its response; 0: the delay does not depend on response times
-- ARGV[2]  1 if the response was a page, else 0
-- ARGV[3]  the longest delay, in microseconds
-- ARGV[4]  after a 429 the interval between requests, in microseconds, else 0
-- ARGV[5]  after a 429 for how many microseconds further ones do not count
-- Returns the delay, in microseconds.
local function field(name)
  return tonumber(redis.call('HGET', KEYS[1], name) or '0') or 0
end
local latency, longest, interval = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
local page = ARGV[2] == '1'
local base, delay, limited = field('base'), field('delay'), field('limited')
if latency > 0 then -- as Scrapy's AutoThrottle: it rises at once and falls slowly, and errors never lower it
  if base == 0 or latency < base then
    base = latency
  else
    base = base + base / 100 -- so that one fast response is forgotten after some hundred
  end
  local target = math.max(latency - base, 0)
  local new = math.min(math.max(target, (delay + target) / 2), longest)
  if page or new > delay then
    delay = new
  end
end
if interval > 0 then
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local since = now - field('limited_at')
  if since < 0 or since >= tonumber(ARGV[5]) then
    limited = math.min(2 * math.max(limited, interval), longest)
    redis.call('HSET', KEYS[1], 'limited_at', string.format('%.0f', now))
  end
elseif page then
  limited = limited * 0.99
  if limited < 10000 then
    limited = 0
  end
end
if base + delay + limited > 0 then
  redis.call('HSET', KEYS[1], 'base', string.format('%.0f', base), 'delay', string.format('%.0f', delay), 'limited', string.format('%.0f', limited))
  redis.call('PEXPIRE', KEYS[1], 3600000)
end
return math.floor(math.max(delay, limited))
