-- Counts the items of a job that has not ended in the counters of all jobs.
-- KEYS: 1 record, 2 items. ARGV: items as tally takes them.
-- Returns 1, or 0 if there is no such job or it has stored what it has come to.
if redis.call("EXISTS", KEYS[1]) == 0 or redis.call("HEXISTS", KEYS[1], "final") == 1 then return 0 end
tally(KEYS[2], KEYS[1], ARGV[1])
return 1
