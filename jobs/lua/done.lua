-- Removes a job from the list of those to advance, unless it was added again.
-- KEYS: 1 todo. ARGV: id, the score that it had.
-- Returns 1 if it was removed, else 0.
local at = redis.call("ZSCORE", KEYS[1], ARGV[1])
if not at or tonumber(at) ~= tonumber(ARGV[2]) then return 0 end
return redis.call("ZREM", KEYS[1], ARGV[1])
