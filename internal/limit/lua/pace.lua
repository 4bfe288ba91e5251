-- Reserves the next free time of a key.
-- KEYS: next. ARGV: interval to the subsequent time in µs, maximum wait of the
-- caller in µs.
-- Returns {1 reserved | 0 not, µs until the time}.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local text, wait = string.match(redis.call("GET", KEYS[1]) or "", "^(%d+) (%d+)$")
local at, longest = math.max(now, tonumber(text) or 0), now + (tonumber(wait) or 0)

-- The expiry only removes the key; the stored time determines when it is past.
local function save(moment, wait)
  redis.call("SET", KEYS[1], string.format("%.0f %.0f", moment, wait), "PX", math.ceil((moment - now) / 1000) + 1000)
end
if at > longest and at > now then -- the clock was set back
  at = longest
  save(at, at - now)
end
if at - now > tonumber(ARGV[2]) then return { 0, at - now } end
local after = at + tonumber(ARGV[1])
save(after, after - now)
return { 1, at - now }
