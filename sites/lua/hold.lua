-- Gives out no turn of a site for a while; a longer hold stays.
-- KEYS[1]  turnKey
-- ARGV[1]  microseconds
-- Returns 1.
local t = redis.call('TIME')
local til = t[1] * 1000000 + t[2] + tonumber(ARGV[1])
local at = tonumber(redis.call('GET', KEYS[1]) or '0')
if til > at then
  redis.call('SET', KEYS[1], string.format('%.0f', til), 'PX', math.ceil(tonumber(ARGV[1]) / 1000) + 1000)
end
return 1
