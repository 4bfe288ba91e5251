-- Drains an agent, or ends that.
-- KEYS: free, version. ARGV: id, unix ms from which it gets work.
-- Returns 1, or 0 if the agent does not exist.
if not redis.call("ZSCORE", KEYS[1], ARGV[1]) then return 0 end
redis.call("ZADD", KEYS[1], ARGV[2], ARGV[1])
redis.call("INCR", KEYS[2])
return 1
