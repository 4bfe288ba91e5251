-- Stores that the lease of an assignment was extended, and what the assignment has
-- used so far: that is counted when it ends, however it does.
-- KEYS: record of the assignment, held by the agent.
-- ARGV: id, unix ms at which the lease expires, usage or "".
-- Returns 1, or 0 if the assignment has ended.
if redis.call("HEXISTS", KEYS[1], "outcome") == 1 then return 0 end
redis.call("ZADD", KEYS[2], ARGV[2], ARGV[1])
if ARGV[3] ~= "" then redis.call("HSET", KEYS[1], "usage", ARGV[3]) end
redis.call("EXPIRE", KEYS[1], 86400)
return 1
