-- Notes that a job made progress, and adds usage to it. A total that would be too large stays, and a new field beyond the limit is left out.
-- KEYS: 1 record, 2 usage. ARGV: unix ms of the progress or below 0 for now, most fields, then fields and numbers.
-- Returns 1, or 0 if the job does not exist.
if redis.call("EXISTS", KEYS[1]) == 0 then return 0 end
if tonumber(ARGV[1]) < 0 then clock() end
redis.call("HSET", KEYS[1], "progressed", stamp or ARGV[1], "futile", 0)
local fields, set, room = {}, {}, nil
for i = 3, #ARGV, 2 do fields[#fields + 1] = ARGV[i] end
if #fields == 0 then return 1 end
for i, old in ipairs(redis.call("HMGET", KEYS[2], unpack(fields))) do
  if not old then room = (room or tonumber(ARGV[2]) - redis.call("HLEN", KEYS[2])) - 1 end
  local total = tonumber(old or 0) + tonumber(ARGV[2 * i + 2])
  if (old or room >= 0) and total <= 2^53 then -- numbers of Lua are not exact beyond it
    set[#set + 1] = fields[i]
    set[#set + 1] = string.format("%.0f", total)
  end
end
if #set > 0 then redis.call("HSET", KEYS[2], unpack(set)) end
return 1
