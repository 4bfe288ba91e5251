-- drop deletes a workflow that has ended.
-- KEYS as in lib
-- ARGV[1] reference of the workflow
-- returns 'ok', 'running' or 'unknown'
local wf = P .. 'w:' .. ARGV[1]
if redis.call('HEXISTS', wf, TASKS) == 0 then return 'unknown' end
if redis.call('PTTL', wf) < 0 then return 'running' end
redis.call('DEL', wf, wf .. ':log', wf .. ':out') -- the key of a chosen ID expires: it may be of a later workflow by now
return 'ok'
