-- Stores the final stages and counts of an ended job, once.
-- KEYS: 1 record, 2 items, 3 reviews. ARGV: stages and counts as JSON, items as tally takes them, id of the job,
-- when it ended.
-- Returns 1, 0 if the job does not exist, or 2 if it has ended again or was reopened since.
if redis.call("EXISTS", KEYS[1]) == 0 then return 0 end
if redis.call("HGET", KEYS[1], "ended") ~= ARGV[4] then return 2 end
redis.call("HDEL", KEYS[1], "") -- so that it is done in a full Redis, too
if redis.call("HSETNX", KEYS[1], "final", ARGV[1]) == 1 then tally(KEYS[2], KEYS[1], ARGV[2]) end
redis.call("ZREM", KEYS[3], ARGV[3])
return 1
