-- Stores the outcome of an attempt to deliver.
-- KEYS: 1 attempts, 2 numbers of the endpoint, 3 its log, 4 open.
-- ARGV: message, delivery, attempt (JSON or ""), outcome: delivered, failed, given_up or skipped, error.
-- Returns 1, or 0 if the delivery is no longer in the log.
local time = redis.call("TIME")
local now = string.format("%.0f", tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
local outcome = ARGV[4]
-- A delivery ends once, even if this call is repeated after a lost reply or a crash.
local ends = outcome ~= "failed" and redis.call("ZREM", KEYS[4], ARGV[2]) or 0
if outcome == "delivered" then
  redis.call("HINCRBY", KEYS[2], "delivered", ends)
  redis.call("HSET", KEYS[2], "last_ok", now)
  redis.call("HDEL", KEYS[2], "failing", "given_up_at")
elseif outcome ~= "skipped" then
  redis.call("HSET", KEYS[2], "last_failure", now, "last_error", ARGV[5])
  redis.call("HSETNX", KEYS[2], "failing", now)
  if outcome == "given_up" then
    redis.call("HINCRBY", KEYS[2], "given_up", ends)
    redis.call("HSETNX", KEYS[2], "given_up_at", now)
  end
end
if not redis.call("ZSCORE", KEYS[3], ARGV[1]) then return 0 end
if ARGV[3] ~= "" then redis.call("HSET", KEYS[1], ARGV[2], ARGV[3]) end
return 1
