-- inputs stores inputs of the members of a map, before turn adds the members. It stores nothing if the workflow is gone
-- or revoked, the map has its members already, or the plan that the map is in is not the one that the caller knows.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] map node, [3] scope of the map, [4] the time at which its plan was stored
-- or '', then node, record, …
-- returns 1, or 0 if it stored nothing
local wf = P .. 'w:' .. ARGV[1]
local have = redis.call('HMGET', wf, 'n', 'x', ARGV[2], 'm' .. ARGV[2], 's' .. ARGV[3])
if not have[1] or have[2] == '1' or have[3] or have[4] or (have[5] or '') ~= ARGV[4] then return 0 end
for i = 5, #ARGV, 1000 do redis.call('HSET', wf, unpack(ARGV, i, math.min(i + 999, #ARGV))) end
return 1
