-- Reports to a breaker how a request ended.
-- KEYS: breaker, trials. ARGV: token ("" for a request that was not a trial),
-- outcome success|failure|none, threshold, block type, cooldown ms, the most it
-- grows to with trials that fail.
-- Returns {the state: closed, open or half_open}, or if this opened it {opened,
-- how many trials have failed, unix ms now, unix ms until which it is open}, or
-- {recovered} if this closed it.
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
-- Only a trial that is still counted may move a breaker that has opened: any
-- other request began before it opened.
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
