-- inputs stores inputs of the members of a map, ahead of extend; of a workflow that is gone or revoked, or a
-- map that has its members, nothing is stored.
-- KEYS[1] workflow hash
-- ARGV[1] map node, then field, input, …
-- returns 1, or 0 if it stored nothing
local have = redis.call('HMGET', KEYS[1], 'n', 'x', ARGV[1], 'm' .. ARGV[1])
if not have[1] or have[2] or have[3] or have[4] then return 0 end
for i = 2, #ARGV, 1000 do redis.call('HSET', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV))) end
return 1
