-- rest moves lines of the agenda that a sweep has claimed and nobody has changed since.
-- KEYS[1] agenda
-- ARGV[1] time until which they are claimed, then per line: entry, its new time, or '' to take it out
-- returns how many were moved
local claimed, moved = tonumber(ARGV[1]), 0
for i = 2, #ARGV, 2 do
  local at = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if at and tonumber(at) == claimed then
    moved = moved + 1
    if ARGV[i + 1] == '' then
      redis.call('ZREM', KEYS[1], ARGV[i])
    else
      redis.call('ZADD', KEYS[1], 'XX', ARGV[i + 1], ARGV[i])
    end
  end
end
return moved
