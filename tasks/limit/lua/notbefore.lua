-- Moves a key's next free moment to not before a time.
-- KEYS: next. ARGV: µs from now.
-- Returns µs until the next free moment.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local at = math.max(now + tonumber(ARGV[1]), tonumber(redis.call("GET", KEYS[1]) or "") or 0)
-- A full Redis rejects a script whose first write may need memory.
redis.call("PERSIST", KEYS[1])
redis.call("SET", KEYS[1], string.format("%.0f", at), "PX", math.ceil((at - now) / 1000) + 1)
return at - now
