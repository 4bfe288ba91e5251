-- Stops or resumes the leasing of items.
-- KEYS: common.lua. ARGV: paused 0|1.
-- Returns 1 if that changed anything, -1 if the queue has had no items.
if not version then return -1 end
local was = redis.call("HGET", META, "paused")
if ARGV[1] == "1" then
  redis.call("HSET", META, "paused", 1)
  return was and 0 or 1
end
redis.call("HDEL", META, "paused")
redis.call("PUBLISH", META, "ready")
return was and 1 or 0
