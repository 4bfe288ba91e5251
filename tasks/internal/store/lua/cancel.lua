-- cancel marks a workflow as cancelled: workers fail the nodes of it that they take, except for nodes that handle
-- failures. The caller fails the nodes without a worker; until that is done, the agenda has an entry for it.
-- KEYS as in lib
-- ARGV[1] reference of the workflow
-- returns {'ok', wants}; {'cancelled'} if it was cancelled before and has ended; {'ended'}, {'revoked'} or {'unknown'}
local wf = P .. 'w:' .. ARGV[1]
local have = redis.call('HMGET', wf, TASKS, PARTS, STOPPED, ABORTED, FAIRNESS)
if not have[1] or have[2] then return {'unknown'} end
if have[4] then return {'ended'} end
if have[3] == BY_REVOKE then return {'revoked'} end
if redis.call('PTTL', wf) >= 0 then return {have[3] and 'cancelled' or 'ended'} end
redis.call('HSET', wf, STOPPED, BY_CANCEL)
redis.call('ZADD', P .. 'agenda', whole(now + SOON), ARGV[1] .. '/!cancel')
if have[3] == BY_PAUSE then unpark(ARGV[1], have[5] or ARGV[1]) end
saveDepth()
return {'ok', wants}
