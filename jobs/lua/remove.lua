-- Deletes a job that has ended.
-- KEYS: common.lua, then 5 usage, 6 dependents, 7 ended, 8 todo, 9 dedupe, 10 document, 11 prompt, 12 context, 13 pipeline, then the
-- indexes and reviews, then items.
-- ARGV: id, prefix of records. KEYS[10] is the record if there is none.
-- The jobs that come after it remember how it ended, in the field "after:" with its id.
-- Returns {1, 1 if no other job has its document}, {0, 0} if it has not ended, or {-1, 0} if the job does not exist.
clock()
local id = ARGV[1]
local status = redis.call("HGET", RECORD, "status")
if not status then
  redis.call("ZREM", KEYS[7], id)
  redis.call("ZREM", KEYS[8], id)
  return { -1, 0 }
end
if status == "created" or status == "processing" then return { 0, 0 } end
for i = 14, #KEYS - 1 do redis.call("ZREM", KEYS[i], id) end
redis.call("ZREM", KEYS[7], id)
redis.call("ZREM", KEYS[8], id)
tally(KEYS[#KEYS], RECORD, "")
if redis.call("GET", KEYS[9]) == id then redis.call("DEL", KEYS[9]) end
for _, other in ipairs(redis.call("SMEMBERS", KEYS[6])) do
  if redis.call("EXISTS", ARGV[2] .. other) == 1 then redis.call("HSET", ARGV[2] .. other, "after:" .. id, status) end
end
local last = 0
if KEYS[10] ~= RECORD then
  redis.call("SREM", KEYS[10], id)
  if redis.call("EXISTS", KEYS[10]) == 0 then last = 1 end
end
if redis.call("HINCRBY", KEYS[13], "jobs", -1) <= 0 then redis.call("DEL", KEYS[13]) end
redis.call("DEL", RECORD, KEYS[5], KEYS[6], KEYS[11], KEYS[12], EVENTS_OF_JOB)
emit("job.deleted", id, "")
redis.call("DEL", EVENTS_OF_JOB)
return { 1, last }
