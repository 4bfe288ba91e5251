-- Reserves room for assignments of an agent, so that processes that give it
-- work at the same moment do not give it more than its capacity. A reservation
-- that is not used ends by itself.
-- KEYS: agents, drained, resting, held by the agent.
-- ARGV: agent, its capacity, "1" to check that it is registered, ms of the
-- reservation, then the ids of the assignments.
-- Returns {how many of the ids are reserved, held before, ms for which it takes
-- no work or -1 if that is not known}.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
for i = 5, #ARGV do redis.call("ZREM", KEYS[4], ARGV[i]) end
redis.call("ZREMRANGEBYSCORE", KEYS[4], "-inf", string.format("%.0f", now))
local held = redis.call("ZCARD", KEYS[4])
if ARGV[3] == "1" then
  if redis.call("HEXISTS", KEYS[1], ARGV[1]) == 0 or redis.call("SISMEMBER", KEYS[2], ARGV[1]) == 1 then
    return { 0, held, -1 }
  end
  local rest = tonumber(redis.call("ZSCORE", KEYS[3], ARGV[1]) or 0) - now
  if rest > 0 then return { 0, held, rest } end
end
local n = math.max(0, math.min(tonumber(ARGV[2]) - held, #ARGV - 4))
for i = 5, 4 + n do
  redis.call("ZADD", KEYS[4], string.format("%.0f", now + tonumber(ARGV[4])), ARGV[i])
end
return { n, held, 0 }
