-- Gives an agent assignments, up to its capacity.
-- KEYS: agents, drained, resting, held by the agent, numbers of the agent.
-- ARGV: agent, its capacity, "1" if it is registered, then the id of each
-- assignment and the unix ms at which its lease expires.
-- Returns {how many of them it has got, how many it holds, ms for which it takes
-- no work or -1 if that is not known}.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local held = redis.call("ZCOUNT", KEYS[4], "(" .. string.format("%.0f", now), "+inf")
if ARGV[3] == "1" then
  if redis.call("HEXISTS", KEYS[1], ARGV[1]) == 0 or redis.call("SISMEMBER", KEYS[2], ARGV[1]) == 1 then
    return { 0, held, -1 }
  end
  local rest = tonumber(redis.call("ZSCORE", KEYS[3], ARGV[1]) or 0) - now
  if rest > 0 then return { 0, held, rest } end
  redis.call("HSET", KEYS[5], "idle", string.format("%.0f", now))
end
local n = 0
for i = 4, #ARGV, 2 do
  if redis.call("ZSCORE", KEYS[4], ARGV[i]) then
    n = n + 1 -- the client has sent it again
  elseif held < tonumber(ARGV[2]) then
    redis.call("ZADD", KEYS[4], ARGV[i + 1], ARGV[i])
    n, held = n + 1, held + 1
  end
end
redis.call("EXPIRE", KEYS[4], 86400)
return { n, held, 0 }
