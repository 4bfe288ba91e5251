-- Adds the events of items that have ended, also of a job that has.
-- KEYS: common.lua, then 5 reviews. ARGV: id, last ending that is in the events, last of these, then type and data of each event.
-- Returns 1, or 0 if the job does not exist or another process has added some of them.
clock()
local id = ARGV[1]
local r = redis.call("HMGET", RECORD, "status", "endings")
if not r[1] or (r[2] or "") ~= ARGV[2] then return 0 end
redis.call("HDEL", RECORD, "") -- so that it is done in a full Redis, too
redis.call("HSET", RECORD, "endings", ARGV[3])
local open = r[1] == "created" or r[1] == "processing"
if open then redis.call("HSET", RECORD, "updated", stamp) end
for i = 4, #ARGV, 2 do
  if ARGV[i] == "item.review" and open then redis.call("ZADD", KEYS[5], "NX", now, id) end
  emit(ARGV[i], id, ARGV[i + 1])
end
return 1
