-- Reports the result of a request to a breaker.
-- KEYS: breaker, trials. ARGV: token ("" unless the request was a trial),
-- outcome success|failure|none, threshold, block type, cooldown ms, maximum
-- cooldown ms after failed trials.
-- Returns {state: closed, open or half_open}; if this report opened the breaker
-- {opened, number of failed trials, unix ms now, unix ms of the end of the
-- cooldown}; or {recovered} if this report closed it.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local token, outcome = ARGV[1], ARGV[2]
local state = redis.call("HGET", KEYS[1], "state")

local function open()
  redis.call("HSET", KEYS[1], "state", "open", "opened_at", string.format("%.0f", now), "last_block", ARGV[4])
  redis.call("HSETNX", KEYS[1], "since", string.format("%.0f", now))
  local failed = tonumber(redis.call("HGET", KEYS[1], "trials_failed") or "") or 0
  local till = now + math.min(tonumber(ARGV[5]) * 2 ^ failed, tonumber(ARGV[6]))
  redis.call("HSET", KEYS[1], "until", string.format("%.0f", till))
  redis.call("DEL", KEYS[2])
  redis.call("PEXPIRE", KEYS[1], 86400000)
  return { "opened", failed, now, till }
end

if state ~= "open" and state ~= "half_open" then state = "closed" end
if state == "closed" then
  if outcome == "failure" then
    local n = redis.call("HINCRBY", KEYS[1], "failures", 1)
    redis.call("PEXPIRE", KEYS[1], 86400000)
    if n >= tonumber(ARGV[3]) then return open() end
  elseif outcome == "success" then
    redis.call("HDEL", KEYS[1], "failures")
  end
  return { state }
end
-- Only a current trial changes an open breaker: all other requests started before it opened.
if token == "" or redis.call("ZREM", KEYS[2], token) == 0 or state == "open" then return { state } end
if outcome == "failure" then
  redis.call("HINCRBY", KEYS[1], "trials_failed", 1)
  return open()
end
if outcome == "success" then
  redis.call("DEL", KEYS[1], KEYS[2])
  return { "recovered" }
end
return { state }
