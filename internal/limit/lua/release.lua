-- Releases a slot, or a position in the queue.
-- KEYS: slots, waiters, alive. ARGV: holder.
-- Returns 1 if it was held, 0 if not.
local held = redis.call("ZREM", KEYS[1], ARGV[1])
redis.call("ZREM", KEYS[2], ARGV[1])
redis.call("HDEL", KEYS[3], ARGV[1])
return held
