-- Moves the first members of the index of all jobs that have ended to those by kind and state.
-- KEYS: 1 fence, 2 index of all. ARGV: token, prefix of records, prefix of the indexes, how many.
-- Returns how many members were moved or, without a job, removed.
if redis.call("GET", KEYS[1]) ~= ARGV[1] then return redis.error_reply("FENCED another process migrates the store") end
local list = redis.call("ZRANGE", KEYS[2], 0, tonumber(ARGV[4]) - 1, "WITHSCORES")
for i = 1, #list, 2 do
  local id = list[i]
  local r = redis.call("HMGET", ARGV[2] .. id, "kind", "status")
  if r[1] and (r[2] == "completed" or r[2] == "failed" or r[2] == "cancelled") then
    redis.call("ZADD", ARGV[3] .. r[1] .. ":" .. r[2], list[i + 1], id)
  end
  redis.call("ZREM", KEYS[2], id)
end
return #list / 2
