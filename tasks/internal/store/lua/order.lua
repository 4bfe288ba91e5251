-- order makes a workflow wait for the end of another one, which then names it among the steps for its caller.
-- KEYS as in lib
-- ARGV[1] reference of the workflow to wait for, [2] reference of the waiting one
-- returns {'ok'}, or {'ended'}
local wf = P .. 'w:' .. ARGV[1]
local have = redis.call('HMGET', wf, TASKS, PARTS)
if not have[1] or have[2] or redis.call('PTTL', wf) >= 0 then return {'ended'} end
redis.call('HSET', wf, NEXT, ARGV[2])
return {'ok'}
