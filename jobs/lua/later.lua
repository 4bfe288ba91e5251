-- Has a job advanced after a while.
-- KEYS: 1 todo. ARGV: id, ms until then.
-- Returns 1.
clock()
redis.call("ZADD", KEYS[1], string.format("%.0f", now + tonumber(ARGV[2])), ARGV[1])
return 1
