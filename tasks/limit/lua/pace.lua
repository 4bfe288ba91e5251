-- Takes the next free moment of a key.
-- KEYS: next. ARGV: µs from this moment to the one after it, µs the caller
-- would wait.
-- Returns {1 taken | 0 not, µs until the moment}.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local at = math.max(now, tonumber(redis.call("GET", KEYS[1]) or "") or 0)
if at - now > tonumber(ARGV[2]) then return { 0, at - now } end
local after = at + tonumber(ARGV[1])
-- A full Redis rejects a script whose first write may need memory.
redis.call("PERSIST", KEYS[1])
-- The expiry only removes the key: the moment itself says when it is past.
redis.call("SET", KEYS[1], string.format("%.0f", after), "PX", math.ceil((after - now) / 1000) + 1000)
return { 1, at - now }
