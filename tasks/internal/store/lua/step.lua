-- step stores a step of a node, or its saved value, for the worker that has the lease of the node.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] node, [3] worker, [4] value of its lease; then, unless only the lease is to be checked, [5] number of the step,
-- 0 for the saved value, [6] the step, [7] number of the last step
-- returns {1, number of the last step before the call or false}, or {0} if the worker has lost the lease or there is no such workflow
local P, w = KEYS[1], KEYS[1] .. 'w:' .. ARGV[1]
if redis.call('HGET', P .. 'lease:' .. ARGV[3], ARGV[1] .. '/' .. ARGV[2]) ~= ARGV[4] then return {0} end
local have = redis.call('HMGET', w, TASKS, STORED .. ARGV[2])
if not have[1] then return {0} end
if ARGV[5] then redis.call('HSET', w, STORED .. ARGV[2], ARGV[7], STORED .. ARGV[2] .. '/' .. ARGV[5], ARGV[6]) end
return {1, have[2]}
