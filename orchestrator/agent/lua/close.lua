-- Ends an assignment and takes it off its agent. What is left of the record
-- answers repeated calls. An outcome replaces the outcome "lost", which a call
-- that came second may have stored first; the work of that one stays, so that
-- the call that came first can be repeated.
-- KEYS: record of the assignment, due, held by the agent, agents, numbers of the
-- agent, usage of the agent.
-- ARGV: id, agent, outcome, ms to keep the record, error or "", most names of
-- usage, a random text for each call, then names and values of usage.
-- Returns 1 if this call ended it, 2 if it replaced the outcome, 0 if neither.
local at = redis.call("HMGET", KEYS[1], "state", "outcome", "call", "answer")
if at[3] == ARGV[7] then return tonumber(at[4]) end -- the client has sent it again
redis.call("ZREM", KEYS[2], ARGV[1])
redis.call("ZREM", KEYS[3], ARGV[1])
if not at[1] or (at[1] ~= "open" and (at[2] ~= "lost" or ARGV[3] == "lost")) then return 0 end
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local answer = at[1] == "open" and 1 or 2
redis.call("HSET", KEYS[1], "state", "closed", "outcome", ARGV[3], "call", ARGV[7], "answer", answer)
redis.call("HDEL", KEYS[1], "usage")
if ARGV[3] ~= "lost" then redis.call("HDEL", KEYS[1], "work") end
redis.call("PEXPIRE", KEYS[1], ARGV[4])
if redis.call("HEXISTS", KEYS[4], ARGV[2]) == 0 then return answer end
redis.call("HSET", KEYS[5], "idle", string.format("%.0f", now))
if ARGV[3] == "completed" then redis.call("HINCRBY", KEYS[5], "done", 1) end
if answer == 2 then
  redis.call("HINCRBY", KEYS[5], "failed", -1)
elseif ARGV[3] ~= "completed" and ARGV[3] ~= "released" then
  redis.call("HINCRBY", KEYS[5], "failed", 1)
end
if ARGV[5] ~= "" then redis.call("HSET", KEYS[5], "last_error", ARGV[5]) end
if answer == 2 then return 2 end
for i = 8, #ARGV, 2 do
  if redis.call("HEXISTS", KEYS[6], ARGV[i]) == 1 or redis.call("HLEN", KEYS[6]) < tonumber(ARGV[6]) then
    redis.pcall("HINCRBY", KEYS[6], ARGV[i], ARGV[i + 1]) -- a total that is too large stays
  end
end
return 1
