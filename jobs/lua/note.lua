-- Sets fields of a job that has not ended, and appends an event, once for each field "once".
-- KEYS: common.lua. ARGV: id, field that is set only once or "", type of the event or "", its data, then fields and values.
-- Returns 1 if it was done, 0 if the field existed, or the job has ended or does not exist.
clock()
local id, once = ARGV[1], ARGV[2]
local status = redis.call("HGET", RECORD, "status")
if status ~= "created" and status ~= "processing" then return 0 end
if once ~= "" and redis.call("HSETNX", RECORD, once, stamp) == 0 then return 0 end
redis.call("HSET", RECORD, "updated", stamp)
if #ARGV > 4 then redis.call("HSET", RECORD, unpack(ARGV, 5)) end
if ARGV[3] ~= "" then emit(ARGV[3], id, ARGV[4]) end
return 1
