-- Makes the number of the last job one that no later job has.
-- KEYS: 1 fence, 2 seq. ARGV: token, the highest number of a job.
-- Returns 1, or 0 if it is high enough.
if redis.call("GET", KEYS[1]) ~= ARGV[1] then return redis.error_reply("FENCED another process repairs") end
local now = redis.pcall("GET", KEYS[2])
if type(now) == "string" and #now < 16 and now:match("^%d+$") and tonumber(now) >= tonumber(ARGV[2]) then return 0 end
redis.call("SET", KEYS[2], ARGV[2])
return 1
