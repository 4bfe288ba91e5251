-- Claims members whose time has come, so that one process looks after each.
-- KEYS: sorted set of members by unix ms. ARGV: most members, ms after which
-- another process may claim them.
-- Returns the members.
local now = clock()
local ids = redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", string.format("%.0f", now), "LIMIT", 0, ARGV[1])
for _, id in ipairs(ids) do
  redis.call("ZADD", KEYS[1], string.format("%.0f", now + tonumber(ARGV[2])), id)
end
return ids
