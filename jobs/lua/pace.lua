-- Notes that a job made progress, and counts items that have ended.
-- KEYS: 1 record, 2 pace, 3 took. ARGV: items that have ended; of the one that has: its state, the unix ms of its
-- creation, bounds of took.
-- Returns 1, or 0 if the job does not exist.
if redis.call("EXISTS", KEYS[1]) == 0 then return 0 end
redis.call("HSET", KEYS[1], "progressed", string.format("%.0f", now), "futile", 0)
if tonumber(ARGV[1]) > 0 then
  observe(KEYS[3], "item." .. ARGV[2], math.max(0, now - tonumber(ARGV[3])), ARGV[4])
  if redis.call("HINCRBY", KEYS[2], math.floor(now / 10000), ARGV[1]) == tonumber(ARGV[1]) then
    redis.call("EXPIRE", KEYS[2], 3600)
    if redis.call("HLEN", KEYS[2]) > 120 then
      for _, step in ipairs(redis.call("HKEYS", KEYS[2])) do
        if tonumber(step) < now / 10000 - 60 then redis.call("HDEL", KEYS[2], step) end
      end
    end
  end
end
return 1
