-- Removes a job from the jobs with a stale copy of their usage, unless the usage
-- has grown meanwhile.
-- KEYS: stale. ARGV: job, the unix ms that it had.
-- Returns 1 if it was removed, else 0.
local at = redis.call("ZSCORE", KEYS[1], ARGV[1])
if not at or tonumber(at) ~= tonumber(ARGV[2]) then return 0 end
return redis.call("ZREM", KEYS[1], ARGV[1])
