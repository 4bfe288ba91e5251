-- Stores the new expiry of the lease of an assignment, and its usage so far, which
-- is counted when the assignment ends in any way.
-- KEYS: record of the assignment, held by the agent.
-- ARGV: id, unix ms at which the lease expires, usage or "".
-- Returns 1, or 0 if the assignment has ended.
if string.find(redis.call("GET", KEYS[1]) or "", "^%a") then return 0 end
redis.call("ZADD", KEYS[2], ARGV[2], ARGV[1])
if ARGV[3] ~= "" then redis.call("SET", KEYS[1], "  " .. ARGV[3]) end
redis.call("EXPIRE", KEYS[1], 86400)
return 1
