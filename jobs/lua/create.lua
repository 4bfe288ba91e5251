-- Adds a job, unless its Idempotency-Key or the same work exists.
-- KEYS: common.lua, then 5 seq, 6 day, 7 todo, 8 idempotency, 9 dedupe, 10 document, 11 prompt, 12 context,
-- 13 pipeline; then the indexes.
-- ARGV: id, prefix of records, hash of the request, dedupe mode (allow, join or reject), prefix of dependents, when it is
-- first advanced in unix ms, event data, prompt and context for their own keys or "", pipeline as JSON, number of jobs it comes after,
-- these jobs, then the fields of the record and their values.
-- Keys 8 and 10 that are the record mean none.
-- Returns {"created", id}, {"repeat", id}, {"mismatch", ""}, {"joined", id}, {"exists", id} or {"unknown", id of a job
-- that it should come after}.
clock()
local id, records, request, mode = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local afterPrefix, first, data, n = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[11])

if KEYS[8] ~= RECORD then
  local made = redis.call("HMGET", KEYS[8], "job", "request")
  if made[1] and redis.call("EXISTS", records .. made[1]) == 0 then made = {} end -- it was deleted
  if made[1] and made[2] == request then return { "repeat", made[1] } end
  if made[1] then return { "mismatch", "" } end
end
if redis.call("EXISTS", RECORD) == 1 then return { "repeat", id } end
if mode ~= "allow" then
  local other = redis.call("GET", KEYS[9])
  local status = other and redis.call("HGET", records .. other, "status")
  if status and status ~= "failed" and status ~= "cancelled" then
    return { mode == "join" and "joined" or "exists", other }
  end
end
for i = 12, 11 + n do
  if redis.call("EXISTS", records .. ARGV[i]) == 0 then return { "unknown", ARGV[i] } end
end

local seq = redis.call("INCR", KEYS[5])
redis.call("HSET", RECORD, "seq", seq, "created", stamp, "updated", stamp, "version", 1, unpack(ARGV, 12 + n))
for i = 8, 9 do
  if ARGV[i] ~= "" then redis.call("SET", KEYS[3 + i], ARGV[i]) end
end
if redis.call("HINCRBY", KEYS[13], "jobs", 1) == 1 then redis.call("HSET", KEYS[13], "json", ARGV[10]) end
for i = 14, #KEYS do redis.call("ZADD", KEYS[i], seq, id) end
for i = 12, 11 + n do redis.call("SADD", afterPrefix .. ARGV[i], id) end
day(KEYS[6], "created")
redis.call("ZADD", KEYS[7], first, id)
if KEYS[8] ~= RECORD then
  redis.call("HSET", KEYS[8], "job", id, "request", request)
  redis.call("EXPIRE", KEYS[8], 86400)
end
redis.call("SET", KEYS[9], id)
if KEYS[10] ~= RECORD then redis.call("SADD", KEYS[10], id) end
emit("job.created", id, data)
return { "created", id }
