-- Removes a job from an index or a set that it does not belong to, if it has not changed since that was looked at.
-- KEYS: 1 record, 2 fence, 3 index or set. ARGV: id, token, version that it had or "" if there was none.
-- Returns 1, or 0 if it has changed.
if redis.call("GET", KEYS[2]) ~= ARGV[2] then return redis.error_reply("FENCED another process repairs") end
if (redis.call("HGET", KEYS[1], "version") or "") ~= ARGV[3] then return 0 end
local remove = redis.call("TYPE", KEYS[3]).ok == "set" and "SREM" or "ZREM"
redis.call(remove, KEYS[3], ARGV[1])
return 1
