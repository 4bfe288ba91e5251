-- inputs stores inputs of the members of a map, before turn adds the members. It stores nothing if the workflow is gone
-- or revoked, the map has its members already, or the plan that the map is in is not the one that the caller knows.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] map node, [3] scope of the map, [4] the time at which its plan was stored
-- or '', then field, input, …
-- returns 1, or 0 if it stored nothing
local wf = P .. 'w:' .. ARGV[1]
local have = redis.call('HMGET', wf, TASKS, STOPPED, ARGV[2], MEMBERS_OF .. ARGV[2], PLANNED_AT .. ARGV[3])
local begun = have[3] and not string.find(have[3], '^[{WAITING}]')
if not have[1] or have[2] == BY_REVOKE or begun or have[4] or (have[5] or '') ~= ARGV[4] then return 0 end
for i = 5, #ARGV, 1000 do redis.call('HSET', wf, unpack(ARGV, i, math.min(i + 999, #ARGV))) end
return 1
