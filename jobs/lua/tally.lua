-- Counts the items of a job that has not ended in the counters of all jobs, and lists it if some wait for a decision.
-- KEYS: 1 record, 2 items, 3 reviews. ARGV: items as tally takes them, id of the job.
-- Returns 1, or 0 if the job does not exist or has stored its final counts.
clock()
if redis.call("EXISTS", KEYS[1]) == 0 or redis.call("HEXISTS", KEYS[1], "final") == 1 then return 0 end
tally(KEYS[2], KEYS[1], ARGV[1])
if string.find(ARGV[1], "review=", 1, true) then redis.call("ZADD", KEYS[3], "NX", now, ARGV[2])
else redis.call("ZREM", KEYS[3], ARGV[2]) end
return 1
