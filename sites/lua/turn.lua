-- Takes a turn of a site if it is time for one.
-- KEYS[1]  turnKey
-- ARGV[1]  microseconds from this turn to the next
-- Returns 0 when the turn is taken, else the microseconds to wait; nothing is
-- taken then.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local at = tonumber(redis.call('GET', KEYS[1]) or '0')
if at > now then
  return at - now
end
local interval = tonumber(ARGV[1])
if interval > 0 then
  redis.call('SET', KEYS[1], string.format('%.0f', now + interval), 'PX', math.ceil(interval / 1000) + 1000)
end
return 0
