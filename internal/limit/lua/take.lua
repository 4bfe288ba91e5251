-- Takes tokens of a bucket, or refunds them.
-- KEYS: bucket. ARGV: tokens (negative: refund), size of the bucket, tokens per
-- second.
-- Returns {1 taken | 0 not, µs to wait or -1 for never, whole tokens left}.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local n, most, rate = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local b = redis.call("HMGET", KEYS[1], "tokens", "at")
local tokens, at = tonumber(b[1] or "") or most, tonumber(b[2] or "") or now
tokens = math.min(most, tokens + math.max(0, now - at) * rate / 1000000)
local back = at > now -- the clock was set back: the refill starts now

local function save()
  redis.call("HSET", KEYS[1], "tokens", string.format("%.9f", tokens), "at", string.format("%.0f", now))
  if rate > 0 then
    redis.call("PEXPIRE", KEYS[1], math.min(86400000, math.ceil((most - tokens) / rate * 1000)) + 1000)
  else
    redis.call("PERSIST", KEYS[1])
  end
end

if n < 0 then
  tokens = math.min(most, tokens - n)
  save()
  return { 1, 0, math.floor(tokens) }
end
if n > most then return { 0, -1, 0 } end
-- A billionth of a token is a rounding error.
if tokens + 0.000000001 < n then
  if rate <= 0 then return { 0, -1, 0 } end
  if back then save() end
  return { 0, math.ceil((n - tokens) / rate * 1000000), math.max(0, math.floor(tokens)) }
end
tokens = tokens - n
save()
return { 1, 0, math.max(0, math.floor(tokens)) }
