-- Gives an agent assignments of a role, up to its capacity and the limit of the role.
-- KEYS: agents, drained, resting, held by the agent, assignments of the
-- role.
-- ARGV: agent, its capacity, "1" if it is registered, the limit of the role or 0, then the id of each
-- assignment and the unix ms at which its lease expires.
-- Returns {how many of them it has got, how many it holds, ms for which it takes
-- no work or -1 if that is not known}.
local held = redis.call("ZCOUNT", KEYS[4], "(" .. string.format("%.0f", now), "+inf")
if ARGV[3] == "1" then
  if redis.call("HEXISTS", KEYS[1], ARGV[1]) == 0 or redis.call("SISMEMBER", KEYS[2], ARGV[1]) == 1 then
    return { 0, held, -1 }
  end
  local rest = tonumber(redis.call("ZSCORE", KEYS[3], ARGV[1]) or 0) - now
  if rest > 0 then return { 0, held, rest } end
end
local n, most, others = 0, tonumber(ARGV[4]), 0
if most > 0 then
  redis.call("ZREMRANGEBYSCORE", KEYS[5], "-inf", string.format("%.0f", now))
  others = redis.call("ZCARD", KEYS[5])
end
for i = 5, #ARGV, 2 do
  if held < tonumber(ARGV[2]) and (most == 0 or others < most) then
    if most > 0 then
      others = others + redis.call("ZADD", KEYS[5], ARGV[i + 1], ARGV[i])
      redis.call("EXPIRE", KEYS[5], 86400)
    end
    n, held = n + 1, held + redis.call("ZADD", KEYS[4], ARGV[i + 1], ARGV[i]) -- 0 if the client has sent it again
  elseif redis.call("ZSCORE", KEYS[4], ARGV[i]) then
    n = n + 1
  end
end
if ARGV[3] ~= "1" then redis.call("EXPIRE", KEYS[4], 86400) end -- the sweep does not visit Go tasks
return { n, held, 0 }
