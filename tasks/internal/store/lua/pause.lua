-- pause pauses or resumes a workflow. A take parks the ready nodes of a paused workflow that it finds, so that no worker asks
-- for them again.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] pause or resume
-- returns {'ok', wants}, also if nothing changed; {'ended'}, {'cancelled'}, {'revoked'} or {'unknown'}
local wf = P .. 'w:' .. ARGV[1]
local have = redis.call('HMGET', wf, TASKS, PARTS, STOPPED, ABORTED, FAIRNESS)
if not have[1] or have[2] then return {'unknown'} end
if have[4] then return {'ended'} end
if have[3] == BY_REVOKE then return {'revoked'} end
if redis.call('PTTL', wf) >= 0 then return {'ended'} end
if have[3] == BY_CANCEL or have[3] == BY_DEADLINE then return {'cancelled'} end
local pause = ARGV[2] == 'pause'
if pause == (have[3] == BY_PAUSE) then return {'ok', wants} end
if pause then
  redis.call('HSET', wf, STOPPED, BY_PAUSE)
else
  redis.call('HDEL', wf, STOPPED)
  unpark(wf .. ':paused', redis.call('LRANGE', wf .. ':paused', 0, -1), have[5] or ARGV[1])
end
redis.call('PUBLISH', 'muster:changed:' .. ARGV[1], '')
saveDepth()
return {'ok', wants}
