-- Stores what a job that has ended has come to, once.
-- KEYS: 1 record, 2 items, 3 reviews. ARGV: stages and counts as JSON, items as tally takes them, id of the job.
-- Returns 1, or 0 if there is no such job.
if redis.call("EXISTS", KEYS[1]) == 0 then return 0 end
redis.call("HDEL", KEYS[1], "") -- so that it is done in a full Redis, too
if redis.call("HSETNX", KEYS[1], "final", ARGV[1]) == 1 then tally(KEYS[2], KEYS[1], ARGV[2]) end
redis.call("ZREM", KEYS[3], ARGV[3])
return 1
