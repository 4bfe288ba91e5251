-- piece stores a part of the inputs of a workflow before submit. Without submit they expire.
-- KEYS as in lib
-- ARGV[1] reference, [2] number of the part, from 1, [3] ms until the inputs expire, then field, input, …
-- returns {'ok'}; {'dup', reference of the workflow that has the id}; or {'expired'} if the part before is not there
local wf, k = P .. 'w:' .. ARGV[1], tonumber(ARGV[2])
local other = holder(ARGV[1])
if other then return {'dup', other} end
local stored = tonumber(redis.call('HGET', wf, PARTS) or '0')
if k > 1 and stored ~= k and stored ~= k - 1 then return {'expired'} end
redis.call('HSET', wf, PARTS, ARGV[2])
for i = 4, #ARGV, 1000 do redis.call('HSET', wf, unpack(ARGV, i, math.min(i + 999, #ARGV))) end
redis.call('PEXPIRE', wf, ARGV[3])
return {'ok'}
