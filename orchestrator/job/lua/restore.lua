-- Adds a job from a backup, unless it exists.
-- KEYS: common.lua, then 5 fence, 6 seq, 7 todo, 8 cron, 9 usage, 10 dedupe, 11 document; then the indexes. KEYS[10] and
-- KEYS[11] are the record if there is none. The last key is items.
-- ARGV: id, token, prefix of records, prefix of dependents, next time of its cron in unix ms or "", prefix of the ended
-- jobs, 1 to advance it at once or else 0, its items as tally takes them, number of jobs it comes after, these, number of usage values, fields and numbers of usage,
-- number of event values, id, type, at, data and unix ms of each event, then the fields of the record and their values.
-- Returns 1 if it was added, 0 if it exists.
if redis.call("GET", KEYS[5]) ~= ARGV[2] then return redis.error_reply("FENCED another process imports or repairs") end
if redis.call("EXISTS", RECORD) == 1 then return 0 end
local id, pos = ARGV[1], 9
local function rest() -- a list of values behind their number
  local list, n = {}, tonumber(ARGV[pos])
  for i = 1, n do list[i] = ARGV[pos + i] end
  pos = pos + n + 1
  return list
end
local after, usage, events = rest(), rest(), rest()
local seq = redis.call("INCR", KEYS[6])
redis.call("DEL", KEYS[9], EVENTS_OF_JOB)
redis.call("HSET", RECORD, "seq", seq)
for i = pos, #ARGV, 2 do redis.call("HSET", RECORD, ARGV[i], ARGV[i + 1]) end
local r = redis.call("HMGET", RECORD, "status", "kind", "ended")
local ended = r[1] ~= "created" and r[1] ~= "processing"
for i = 12, #KEYS - 1 do redis.call("ZADD", KEYS[i], seq, id) end
tally(KEYS[#KEYS], RECORD, ARGV[8])
for i = 1, #usage, 2 do redis.call("HSET", KEYS[9], usage[i], usage[i + 1]) end
for i = 1, #events, 5 do
  -- An id of the future would keep out the events to come, one out of order is refused.
  if tonumber(events[i + 4]) < now then
    redis.pcall("XADD", EVENTS_OF_JOB, events[i], "type", events[i + 1], "job", id, "at", events[i + 2], "data", events[i + 3])
  end
end
if ended then
  redis.call("ZADD", ARGV[6] .. r[2] .. ":" .. r[1], r[3], id)
else
  if r[1] == "processing" then redis.call("HSET", RECORD, "progressed", stamp) end
  for _, other in ipairs(after) do
    if redis.call("EXISTS", ARGV[3] .. other) == 1 then redis.call("SADD", ARGV[4] .. other, id) end
  end
end
if ARGV[7] == "1" then redis.call("ZADD", KEYS[7], now, id) end
if ARGV[5] ~= "" then redis.call("ZADD", KEYS[8], ARGV[5], id) end
if KEYS[10] ~= RECORD then redis.call("SET", KEYS[10], id, "NX") end
if KEYS[11] ~= RECORD then redis.call("SADD", KEYS[11], id) end
return 1
