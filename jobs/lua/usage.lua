-- Stores the usage of a job. Totals only grow.
-- KEYS: 1 record, 2 usage. ARGV: fields and totals.
-- Returns 1, or 0 if the job does not exist.
if redis.call("EXISTS", KEYS[1]) == 0 then return 0 end
local fields, grown = {}, {}
for i = 1, #ARGV, 2 do fields[#fields + 1] = ARGV[i] end
for i, old in ipairs(redis.call("HMGET", KEYS[2], unpack(fields))) do
  local new = ARGV[2 * i]
  -- Numbers of Lua are not exact beyond 2^53.
  if not old or #old < #new or #old == #new and old < new then
    grown[#grown + 1] = fields[i]
    grown[#grown + 1] = new
  end
end
if #grown > 0 then redis.call("HSET", KEYS[2], unpack(grown)) end
return 1
