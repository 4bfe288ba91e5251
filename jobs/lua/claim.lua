-- Takes the first jobs that may have work for a role. They come back by themselves after a while, unless ready.lua or
-- later.lua puts them back sooner.
-- KEYS: 1 ready, 2 due, 3 wake. ARGV: prefix of records, how many, ms after which they come back.
-- Jobs that are not processing, or are paused, leave the lists.
-- Returns the jobs, then ms until the next is due or -1, then unix ms of now.
local n, back = tonumber(ARGV[2]), tonumber(ARGV[3])
for _, id in ipairs(redis.call("ZRANGEBYSCORE", KEYS[2], "-inf", now, "LIMIT", 0, 500)) do
  local score = rank(ARGV[1] .. id)
  redis.call("ZREM", KEYS[2], id)
  if score then redis.call("ZADD", KEYS[1], score, id) end
end
local out = {}
for _, id in ipairs(redis.call("ZRANGE", KEYS[1], 0, n + 99)) do
  if #out == n then break end
  redis.call("ZREM", KEYS[1], id)
  if rank(ARGV[1] .. id) then
    out[#out + 1] = id
    redis.call("HSET", ARGV[1] .. id, "turn", string.format("%.3f", tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000))
  end
end
for _, id in ipairs(out) do
  local at = redis.call("ZSCORE", KEYS[2], id)
  if not at or tonumber(at) > now + back then redis.call("ZADD", KEYS[2], now + back, id) end
end
local wait = -1
local first = redis.call("ZRANGE", KEYS[2], 0, 0, "WITHSCORES")
if first[2] then wait = math.max(0, tonumber(first[2]) - now) end
if redis.call("EXISTS", KEYS[1]) == 1 then
  wait = 0
  if #out > 0 then wakeOne(KEYS[3]) end
end
out[#out + 1] = string.format("%.0f", wait)
out[#out + 1] = string.format("%.0f", now)
return out
