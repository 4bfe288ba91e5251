-- Stores the heartbeat of a pool, and ends the leases of pools without recent heartbeats.
-- KEYS: common.lua. ARGV: worker, ms for which it is alive, attempt
-- limit, note.
-- Returns {leases ended, then the names of the other pools}.
local ttl = tonumber(ARGV[2])
local last = number(redis.call("HGET", META, "beat"))
redis.call("HSET", META, "beat", string.format("%.0f", now))
redis.call("ZADD", POOLS, now + ttl, ARGV[1])
if not version then -- the queue may have been deleted
  redis.call("EXPIRE", META, 3600)
  redis.call("EXPIRE", POOLS, 3600)
end
local moved = 0
if sealed then
  -- Sealing ends the leases, and counts no attempt.
elseif math.abs(now - last) > ttl / 2 then
  -- No pool has called it, because Redis was away or no pool ran, or the clock was set. Pools that may run get time to call
  -- again.
  for _, name in ipairs(redis.call("ZRANGE", POOLS, 0, 999)) do
    redis.call("ZADD", POOLS, now + ttl, name)
  end
else
  local dead = {}
  for _, name in ipairs(redis.call("ZRANGEBYSCORE", POOLS, "-inf", now, "LIMIT", 0, 1000)) do
    dead[name] = true
    redis.call("ZREM", POOLS, name)
  end
  if next(dead) then moved = expireAll(dead, tonumber(ARGV[3]), ARGV[4]) end
end
finish(moved)
local out = { moved }
for _, name in ipairs(redis.call("ZRANGE", POOLS, 0, 999)) do
  if name ~= ARGV[1] then out[#out + 1] = name end
end
return out
