-- Counts the items of a job in the counters of all jobs, and lists it if some wait for a decision. The final stages and
-- counts of an ended job are stored, once, and its items counted with them.
-- KEYS: 1 record, 2 items, 3 reviews. ARGV: items as tally takes them, id of the job, final stages and counts as JSON or "",
-- when it ended or "".
-- Returns 1, 0 if the job does not exist, or 2 if it has stored its final counts, has ended again or was reopened since.
if redis.call("EXISTS", KEYS[1]) == 0 then return 0 end
local ended, final = ARGV[3] ~= "", redis.call("HEXISTS", KEYS[1], "final") == 1
if ended and redis.call("HGET", KEYS[1], "ended") ~= ARGV[4] or not ended and final then return 2 end
redis.call("HDEL", KEYS[1], "") -- so that it is done in a full Redis, too
if not final then tally(KEYS[2], KEYS[1], ARGV[1]) end
if ended then redis.call("HSETNX", KEYS[1], "final", ARGV[3]) end
if not ended and string.find(ARGV[1], "review=", 1, true) then
  clock()
  redis.call("ZADD", KEYS[3], "NX", now, ARGV[2])
else
  redis.call("ZREM", KEYS[3], ARGV[2])
end
return 1
