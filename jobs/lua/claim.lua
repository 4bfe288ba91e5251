-- Takes the first jobs that may have work for a role. They come back by themselves after a while, unless ready.lua or
-- later.lua puts them back sooner.
-- KEYS: 1 ready, 2 due, 3 wake. ARGV: prefix of records, how many, ms after which they come back.
-- Jobs that are not processing, or are paused, leave the lists.
-- Returns the jobs, then ms until the next is due or -1, then unix ms of now.
local n, back = tonumber(ARGV[2]), tonumber(ARGV[3])
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
local out = {}
local ready = redis.call("ZRANGE", KEYS[1], 0, n + 100)
local removed = 0
for _, id in ipairs(ready) do
  if #out == n then break end
  redis.call("ZREM", KEYS[1], id)
  removed = removed + 1
  if rank(ARGV[1] .. id) then
    out[#out + 1] = id
    redis.call("HSET", ARGV[1] .. id, "turn", string.format("%.3f", tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000))
  end
end
for _, id in ipairs(out) do
  local at = tonumber(redis.call("ZSCORE", KEYS[2], id) or math.huge)
  if at > now + back then
    redis.call("ZADD", KEYS[2], now + back, id)
    due = math.min(due, now + back)
  end
end
local wait = due < math.huge and math.max(0, due - now) or -1
if removed < #ready then
  wait = 0
  if #out > 0 then wakeOne(KEYS[3]) end
end
out[#out + 1] = string.format("%.0f", wait)
out[#out + 1] = string.format("%.0f", now)
return out
