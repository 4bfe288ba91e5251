-- Removes a job whose usage was written from those that are owed, unless more
-- was used meanwhile.
-- KEYS: owed. ARGV: job, the unix ms that it had.
-- Returns 1 if it was removed, else 0.
local at = redis.call("ZSCORE", KEYS[1], ARGV[1])
if not at or tonumber(at) ~= tonumber(ARGV[2]) then return 0 end
return redis.call("ZREM", KEYS[1], ARGV[1])
