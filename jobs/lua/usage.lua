-- Adds usage to a job. A total that would be too large stays, and a new field beyond the limit is left out.
-- KEYS: 1 record, 2 usage. ARGV: most fields, then fields and numbers.
-- Returns 1, or 0 if the job does not exist.
if redis.call("EXISTS", KEYS[1]) == 0 then return 0 end
local room = tonumber(ARGV[1]) - redis.call("HLEN", KEYS[2])
for i = 2, #ARGV, 2 do
  local old = redis.call("HGET", KEYS[2], ARGV[i])
  if not old then room = room - 1 end
  -- Numbers of Lua are not exact beyond 2^53.
  if (old or room >= 0) and tonumber(old or 0) + tonumber(ARGV[i + 1]) <= 2^53 then
    redis.call("HINCRBY", KEYS[2], ARGV[i], ARGV[i + 1])
  end
end
return 1
