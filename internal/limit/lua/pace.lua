-- Reserves a use of a key now, if it is free.
-- KEYS: next. ARGV: interval to the next use in µs.
-- Returns 0 reserved, or the µs until the key is free.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local text, wait = string.match(redis.call("GET", KEYS[1]) or "", "^(%d+) (%d+)$")
local at, longest = tonumber(text) or 0, now + (tonumber(wait) or 0)

-- The expiry only removes the key; the stored time determines when it is past.
local function save(wait)
  redis.call("SET", KEYS[1], string.format("%.0f %.0f", now + wait, wait), "PX", math.ceil(wait / 1000) + 1000)
end
if at > longest and at > now then -- the clock was set back
  at = longest
  save(at - now)
end
if at > now then return at - now end
save(tonumber(ARGV[1]))
return 0
