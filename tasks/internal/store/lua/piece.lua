-- piece stores inputs of a workflow before submit. Without submit they expire.
-- KEYS as in lib
-- ARGV[1] workflow, [2] token of the sender, [3] ms until they expire, then node, record, …
-- returns 1, or 0 if the workflow exists already
local wf = P .. 'w:' .. ARGV[1]
if redis.call('EXISTS', wf) == 1 and redis.call('HGET', wf, 'u') ~= ARGV[2] then return 0 end
redis.call('HSET', wf, 'u', ARGV[2])
for i = 4, #ARGV, 1000 do redis.call('HSET', wf, unpack(ARGV, i, math.min(i + 999, #ARGV))) end
redis.call('PEXPIRE', wf, ARGV[3])
return 1
