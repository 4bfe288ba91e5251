-- pause pauses or resumes a workflow, or lets one begin that has waited for the end of another one with its unique key. A take parks
-- the ready nodes of such workflows that it finds, so that no worker asks for them again.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] pause, resume or begin
-- returns {'ok'}, also if nothing changed; {'ended'}, {'cancelled'}, {'revoked'} or {'unknown'}
local wf, op = P .. 'w:' .. ARGV[1], ARGV[2]
local have = redis.call('HMGET', wf, TASKS, PARTS, STOPPED, ABORTED, FAIRNESS, BEFORE)
if not have[1] or have[2] then return {'unknown'} end
if have[4] then return {'ended'} end
if have[3] == BY_REVOKE then return {'revoked'} end
if redis.call('PTTL', wf) >= 0 then return {'ended'} end
if have[3] == BY_CANCEL or have[3] == BY_DEADLINE then return {'cancelled'} end
if op == 'pause' and have[3] ~= BY_PAUSE then
  redis.call('HSET', wf, STOPPED, BY_PAUSE)
elseif op == 'resume' and have[3] == BY_PAUSE and have[6] then
  redis.call('HSET', wf, STOPPED, BY_ORDER)
  redis.call('ZADD', P .. 'agenda', whole(now), ARGV[1] .. '/!order')
elseif op == 'resume' and have[3] == BY_PAUSE or op == 'begin' and have[3] == BY_ORDER then
  redis.call('HDEL', wf, STOPPED, BEFORE)
  if have[6] then redis.call('ZREM', P .. 'agenda', ARGV[1] .. '/!order') end
  unpark(wf .. ':paused', redis.call('LRANGE', wf .. ':paused', 0, -1), have[5] or ARGV[1])
else
  return {'ok'}
end
redis.call('PUBLISH', channel('changed:' .. ARGV[1]), '')
saveDepth()
return {'ok'}
