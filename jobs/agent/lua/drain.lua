-- Drains an agent, or ends that.
-- KEYS: agents, drained, version. ARGV: id, "1" to drain.
-- Returns 1, or 0 if the agent does not exist.
if redis.call("HEXISTS", KEYS[1], ARGV[1]) == 0 then return 0 end
if ARGV[2] == "1" then
  redis.call("SADD", KEYS[2], ARGV[1])
else
  redis.call("SREM", KEYS[2], ARGV[1])
end
redis.call("INCR", KEYS[3])
return 1
