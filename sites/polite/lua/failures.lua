-- Counts a failed request for a page of a site.
-- KEYS[1]  failuresKey
-- ARGV[1]  1 if it was the page's first attempt, else 0
-- ARGV[2]  the proxy of the request, or "direct"
-- ARGV[3]  how many proxies are kept
-- ARGV[4]  how many seconds the key is kept
-- Returns the number of failed pages, the number of proxies, and 1 if a request without a proxy failed, else 0.
local pages = redis.call('HINCRBY', KEYS[1], 'pages', ARGV[1])
if ARGV[2] == 'direct' then
  redis.call('HSET', KEYS[1], 'direct', '1')
end
local direct = redis.call('HEXISTS', KEYS[1], 'direct')
local proxies = redis.call('HLEN', KEYS[1]) - 1 - direct
if ARGV[2] ~= 'direct' and proxies < tonumber(ARGV[3]) then
  proxies = proxies + redis.call('HSETNX', KEYS[1], 'via ' .. ARGV[2], '1')
end
redis.call('EXPIRE', KEYS[1], ARGV[4])
return {pages, proxies, direct}
