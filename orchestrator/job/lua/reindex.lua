-- Puts a job into its indexes, if it has not changed since they were looked at.
-- KEYS: 1 record, 2 fence, 3 index of those that have ended or the record if it has not; then the indexes.
-- ARGV: id, token, version and state that it had.
-- Returns 1, or 0 if it has changed.
if redis.call("GET", KEYS[2]) ~= ARGV[2] then return redis.error_reply("FENCED another process repairs") end
local r = redis.call("HMGET", KEYS[1], "version", "status", "seq", "ended")
if r[1] ~= ARGV[3] or r[2] ~= ARGV[4] then return 0 end
for i = 4, #KEYS do redis.call("ZADD", KEYS[i], r[3], ARGV[1]) end
if KEYS[3] ~= KEYS[1] then redis.call("ZADD", KEYS[3], r[4] or 0, ARGV[1]) end
return 1
