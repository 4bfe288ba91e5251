-- Pauses a job that has not ended, or resumes it.
-- KEYS: common.lua. ARGV: id, 1 to pause or "" to resume, type of the event.
-- Returns 1, or 0 if the job has ended or does not exist.
clock()
local r = redis.call("HMGET", RECORD, "status", "paused")
if r[1] ~= "created" and r[1] ~= "processing" then return 0 end
if (r[2] == "1") == (ARGV[2] == "1") then return 1 end
if ARGV[2] == "1" then redis.call("HSET", RECORD, "paused", 1) else redis.call("HDEL", RECORD, "paused") end
redis.call("HSET", RECORD, "updated", stamp, "progressed", stamp)
redis.call("HINCRBY", RECORD, "version", 1)
emit(ARGV[3], ARGV[1], "")
return 1
