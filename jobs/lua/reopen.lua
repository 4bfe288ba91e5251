-- Reopens a job that is completed or has failed.
-- KEYS: common.lua, then 5 todo, 6 the ended jobs of its status.
-- ARGV: id, prefix of the indexes by status, data of the event, ms until it is advanced, then fields to delete.
-- Returns 1, 0 if it has not ended, or -1 if the job does not exist.
clock()
local id = ARGV[1]
local r = redis.call("HMGET", RECORD, "status", "seq")
if not r[1] then return -1 end
if r[1] ~= "completed" and r[1] ~= "failed" then return 0 end
redis.call("HSET", RECORD, "status", "processing", "updated", stamp, "reopened", stamp, "progressed", stamp, "futile", 0)
redis.call("HDEL", RECORD, "ended", "final", "error", "details", "failed_stage", "failed_stage_error", unpack(ARGV, 5))
redis.call("HINCRBY", RECORD, "version", 1)
redis.call("ZREM", ARGV[2] .. r[1], id)
redis.call("ZADD", ARGV[2] .. "processing", r[2], id)
redis.call("ZREM", KEYS[6], id)
redis.call("ZADD", KEYS[5], now + tonumber(ARGV[4]), id)
emit("job.reopened", id, ARGV[3])
return 1
