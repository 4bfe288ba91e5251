-- Gives an agent assignments of a role, up to its capacity and the limit of the role.
-- KEYS: free, held by the agent, assignments of the role.
-- ARGV: agent, its capacity, "1" if it is registered, the limit of the role or 0, unix ms of now, drained, then the id of
-- each assignment and the unix ms at which its lease expires.
-- Returns {how many of them it has got, how many it holds, ms for which it takes
-- no work or -1 if that is not known}.
local now, FREE, HELD, ROLE = tonumber(ARGV[5]), KEYS[1], KEYS[2], KEYS[3]
local held = redis.call("ZCOUNT", HELD, "(" .. ARGV[5], "+inf")
if ARGV[3] == "1" then
  local free = tonumber(redis.call("ZSCORE", FREE, ARGV[1]) or ARGV[6])
  if free >= tonumber(ARGV[6]) then return { 0, held, -1 } end
  if free > now then return { 0, held, free - now } end
end
local n, most, others = 0, tonumber(ARGV[4]), 0
if most > 0 then
  redis.call("ZREMRANGEBYSCORE", ROLE, "-inf", ARGV[5])
  others = redis.call("ZCARD", ROLE)
end
for i = 7, #ARGV, 2 do
  if held < tonumber(ARGV[2]) and (most == 0 or others < most) then
    if most > 0 then
      others = others + redis.call("ZADD", ROLE, ARGV[i + 1], ARGV[i])
      redis.call("EXPIRE", ROLE, 86400)
    end
    n, held = n + 1, held + redis.call("ZADD", HELD, ARGV[i + 1], ARGV[i]) -- 0 if the client has sent it again
  elseif redis.call("ZSCORE", HELD, ARGV[i]) then
    n = n + 1
  end
end
if ARGV[3] ~= "1" then redis.call("EXPIRE", HELD, 86400) end -- the sweep does not visit Go tasks
return { n, held, 0 }
