-- Notes that a job made progress.
-- KEYS: 1 record. ARGV: none.
-- Returns 1, or 0 if the job does not exist.
if redis.call("EXISTS", KEYS[1]) == 0 then return 0 end
redis.call("HSET", KEYS[1], "progressed", stamp, "futile", 0)
return 1
