-- cancel marks a workflow as cancelled, by a client or by its deadline: workers fail the nodes of it that they take, except for nodes that handle
-- failures. The caller fails the nodes without a worker; until that is done, the agenda has an entry for it.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] 1 for the deadline
-- returns {'ok'}; {'cancelled'} if it was cancelled before and has ended; {'ended'}, {'revoked'} or {'unknown'};
-- {'early'} if the workflow has no deadline that has passed
local wf = P .. 'w:' .. ARGV[1]
local have = redis.call('HMGET', wf, TASKS, PARTS, STOPPED, ABORTED, FAIRNESS, DEADLINE)
if ARGV[2] == '1' then
  local note = ARGV[1] .. '/!deadline'
  if have[6] and tonumber(have[6]) > now then -- the clock was set back
    redis.call('ZADD', P .. 'agenda', have[6], note)
    return {'early'}
  end
  redis.call('ZREM', P .. 'agenda', note)
  if not have[6] then return {'early'} end -- it was retried after the deadline
end
if not have[1] or have[2] then return {'unknown'} end
if have[4] then return {'ended'} end
if have[3] == BY_REVOKE then return {'revoked'} end
if redis.call('PTTL', wf) >= 0 then return {have[3] and 'cancelled' or 'ended'} end
if have[3] ~= BY_CANCEL and have[3] ~= BY_DEADLINE then redis.call('HSET', wf, STOPPED, ARGV[2] == '1' and BY_DEADLINE or BY_CANCEL) end
redis.call('ZADD', P .. 'agenda', whole(now + SOON), ARGV[1] .. '/!cancel')
if have[3] == BY_PAUSE or have[3] == BY_ORDER then unpark(wf .. ':paused', redis.call('LRANGE', wf .. ':paused', 0, -1), have[5] or ARGV[1]) end
saveDepth()
return {'ok'}
