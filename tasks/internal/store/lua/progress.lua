-- progress records how far a running node is. For a node that has ended it changes nothing.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] node, [3] done/total
-- returns 1, or 0 if it changed nothing
local wf = P .. 'w:' .. ARGV[1]
local have = redis.call('HMGET', wf, TASKS, ARGV[2], REVISION)
if not have[1] or (have[2] and string.find(TERMINAL, string.sub(have[2], 1, 1), 1, true)) then return 0 end
redis.call('HSET', wf, PROGRESS .. ARGV[2], ARGV[3], REVISION, whole(math.max(now, (tonumber(have[3] or '') or 0) + 1)))
return 1
