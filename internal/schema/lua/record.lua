-- Records a completed migration of the process that holds the lock.
-- KEYS: 1 schema. ARGV: token, number of the migration.
-- Returns 1, or 0 if another process has acquired the lock.
if redis.call("HGET", KEYS[1], "token") ~= ARGV[1] then return 0 end
local time = redis.call("TIME")
if (tonumber(redis.call("HGET", KEYS[1], "version") or "") or 0) < tonumber(ARGV[2]) then
  redis.call("HSET", KEYS[1], "version", ARGV[2])
end
redis.call("HSETNX", KEYS[1], "done:" .. ARGV[2], time[1] .. string.format("%03d", math.floor(tonumber(time[2]) / 1000)))
return 1
