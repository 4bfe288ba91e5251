-- inputs stores inputs of the members of a map, before turn adds the members. It stores nothing if the workflow is gone
-- or revoked, or the map has its members already.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] map node, then node, record, …
-- returns 1, or 0 if it stored nothing
local wf = P .. 'w:' .. ARGV[1]
local have = redis.call('HMGET', wf, 'n', 'x', ARGV[2], 'm' .. ARGV[2])
if not have[1] or have[2] or have[3] or have[4] then return 0 end
for i = 3, #ARGV, 1000 do redis.call('HSET', wf, unpack(ARGV, i, math.min(i + 999, #ARGV))) end
return 1
