-- Takes the first job that may have work for a role off the ready list; ready.lua puts it back, or the next sweep.
-- KEYS: 1 ready, 2 due, 3 wake. ARGV: prefix of records, then fields.
-- Jobs that are not processing, or are paused, leave the lists.
-- Returns ms until the next is due or -1, unix ms of now, and if there is a job its id, its place in the ready list and the
-- values of the fields.
clock()
local function nextDue() return tonumber(redis.call("ZRANGE", KEYS[2], 0, 0, "WITHSCORES")[2]) or math.huge end
local due = nextDue()
if due <= now then
  for _, id in ipairs(redis.call("ZRANGEBYSCORE", KEYS[2], "-inf", now, "LIMIT", 0, 500)) do
    local score = rank(ARGV[1] .. id)
    redis.call("ZREM", KEYS[2], id)
    if score then redis.call("ZADD", KEYS[1], score, id) end
  end
  due = nextDue()
end
local out = { due < math.huge and math.max(0, due - now) or -1, now }
for i, id in ipairs(redis.call("ZRANGE", KEYS[1], 0, 100)) do
  if i == 101 or out[3] then
    out[1] = 0
    if out[3] then wakeOne(KEYS[3]) end
    break
  end
  redis.call("ZREM", KEYS[1], id)
  local turn = string.format("%.3f", tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000)
  local place, r = rank(ARGV[1] .. id, turn)
  if place then
    redis.call("HSET", ARGV[1] .. id, "turn", turn)
    out[3], out[4] = id, place
    for k = 2, #ARGV do out[3 + k] = r[4 + k] end
  end
end
return out
