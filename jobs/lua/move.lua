-- Moves a job to another state, if it is in one of those given.
-- KEYS: common.lua, then 5 day, 6 todo, 7 the jobs that come after it.
-- ARGV: id, prefix of the indexes by status, states that it may be in (joined with a space on both sides), new state,
-- prefix of the ended jobs if the new state is terminal or else "", type of the event or "", its data,
-- when it was last reopened or * for any time, then fields and values to set.
-- A job that ends is advanced once more, which stops its work. So are its dependents.
-- A job can end in a full Redis too: Redis rejects scripts whose first write may need memory.
-- Returns {1, state before, ms since it was started if it ends now and was or else ""}, {0, its state} or {-1, ""} if the job does not exist.
clock()
local id, statuses, from, to, ends = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] ~= ""
local took = ""
local was = redis.call("HGET", RECORD, "status")
if not was then return { -1, "" } end
if not string.find(from, " " .. was .. " ", 1, true) then return { 0, was } end
if ARGV[8] ~= "*" and (redis.call("HGET", RECORD, "reopened") or "") ~= ARGV[8] then return { 0, was } end
if ends then redis.call("ZREM", KEYS[6], "") end
redis.call("HSET", RECORD, "status", to, "updated", stamp)
if ends then redis.call("HSET", RECORD, "ended", stamp) end
if #ARGV > 8 then redis.call("HSET", RECORD, unpack(ARGV, 9)) end
if was ~= to then
  redis.call("HINCRBY", RECORD, "version", 1)
  local seq = redis.call("HGET", RECORD, "seq")
  redis.call("ZREM", statuses .. was, id)
  redis.call("ZADD", statuses .. to, seq, id)
  if to == "processing" then
    redis.call("HSETNX", RECORD, "started", stamp)
    redis.call("HSETNX", RECORD, "progressed", stamp)
  end
  if ends then
    day(KEYS[5], to)
    redis.call("ZADD", ARGV[5] .. to, now, id)
    redis.call("ZADD", KEYS[6], now, id)
    local started = redis.call("HGET", RECORD, "started")
    if started then took = string.format("%.0f", math.max(0, now - tonumber(started))) end
    for _, other in ipairs(redis.call("SMEMBERS", KEYS[7])) do
      redis.call("ZADD", KEYS[6], now, other)
    end
  end
end
if ARGV[6] ~= "" then emit(ARGV[6], id, ARGV[7]) end
return { 1, was, took }
