-- progress records how far a running node is. For a node that has ended it changes nothing.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] node, [3] done/total, [4] the same in thousandths, 0 to 1000
-- returns 1, or 0 if it changed nothing
local wf = P .. 'w:' .. ARGV[1]
local have = redis.call('HMGET', wf, TASKS, ARGV[2], REVISION, PROGRESS .. ARGV[2])
if not have[1] or (have[2] and string.find(TERMINAL, string.sub(have[2], 1, 1), 1, true)) then return 0 end
redis.call('HINCRBY', wf, PROGRESS, whole(ARGV[4] - (string.match(have[4] or '', ' (%d+)$') or 0)))
redis.call('HSET', wf, PROGRESS .. ARGV[2], ARGV[3] .. ' ' .. ARGV[4], REVISION, whole(math.max(now, (tonumber(have[3] or '') or 0) + 1)))
redis.call('PUBLISH', channel('changed:' .. ARGV[1]), '')
return 1
