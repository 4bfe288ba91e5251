-- Sets the earliest next free time of a key.
-- KEYS: next. ARGV: µs from now.
-- Returns µs until the next free time.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local text, wait = string.match(redis.call("GET", KEYS[1]) or "", "^(%d+) (%d+)$")
-- If the wait is longer than when it was stored, the clock was set back.
local left = math.min((tonumber(text) or now) - now, tonumber(wait) or 0)
left = math.max(tonumber(ARGV[1]), left)
redis.call("SET", KEYS[1], string.format("%.0f %.0f", now + left, left), "PX", math.ceil(left / 1000) + 1)
return left
