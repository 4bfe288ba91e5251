-- Stores the result of a health check. The next check is after the interval,
-- doubled for each failure in a row.
-- KEYS: agents, seen, checks, health, numbers of the agent, version.
-- ARGV: id, "" for success or the error, interval in ms, longest interval in
-- ms, last activity, current job.
-- Returns {1, failures in a row before, failures in a row now, ms since the last
-- heartbeat, unix ms}, or {0, 0, 0, 0, 0} if the agent does not exist.
local now = clock()
local id = ARGV[1]
if redis.call("HEXISTS", KEYS[1], id) == 0 then
  redis.call("ZREM", KEYS[3], id)
  return { 0, 0, 0, 0, 0 }
end
local last = redis.call("HGET", KEYS[4], id)
local ok, check = pcall(cjson.decode, last or "{}")
local before = ok and check.failures or 0
local failures = 0
if ARGV[2] == "" then
  redis.call("ZADD", KEYS[2], string.format("%.0f", now), id)
  redis.call("HSET", KEYS[5], "activity", ARGV[5], "current_job", ARGV[6])
else
  failures = before + 1
  redis.call("HSET", KEYS[5], "last_error", ARGV[2])
end
redis.call("HSET", KEYS[4], id, cjson.encode({ at = now, failures = failures, message = ARGV[2] }))
local wait = math.min(tonumber(ARGV[3]) * 2 ^ math.min(failures, 30), tonumber(ARGV[4]))
redis.call("ZADD", KEYS[3], string.format("%.0f", now + wait), id)
if not last or (before == 0) ~= (failures == 0) then redis.call("INCR", KEYS[6]) end
local silent = now - tonumber(redis.call("ZSCORE", KEYS[2], id) or 0)
return { 1, before, failures, silent, now }
