-- Stores what a job has used. Totals only grow.
-- KEYS: 1 record, 2 usage. ARGV: fields and totals.
-- Returns 1, or 0 if there is no such job.
if redis.call("EXISTS", KEYS[1]) == 0 then return 0 end
for i = 1, #ARGV, 2 do
  local old, new = redis.call("HGET", KEYS[2], ARGV[i]), ARGV[i + 1]
  -- Numbers of Lua are not exact beyond 2^53.
  if not old or #old < #new or #old == #new and old < new then redis.call("HSET", KEYS[2], ARGV[i], new) end
end
return 1
