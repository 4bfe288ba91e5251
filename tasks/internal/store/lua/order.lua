-- order makes a workflow wait for the end of another one, which then names it among the steps for its caller.
-- KEYS as in lib
-- ARGV[1] reference of the workflow to wait for, [2] reference of the waiting one
-- returns {'ok'}, or {'ended', reference of the workflow for whose end it has waited in vain itself, or ''}
local wf = P .. 'w:' .. ARGV[1]
local have = redis.call('HMGET', wf, TASKS, PARTS, BEFORE)
if not have[1] or have[2] then return {'ended', ''} end
if redis.call('PTTL', wf) >= 0 then return {'ended', have[3] or ''} end
redis.call('HSET', wf, NEXT, ARGV[2])
return {'ok'}
