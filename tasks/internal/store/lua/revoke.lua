-- revoke stops a workflow: from now on none of its nodes is released, added or taken. The caller makes them terminal
-- with turn; until that is done, the agenda has an entry for it.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] 1 to revoke it only if no task of it has begun
-- returns 1, 0 when it has ended, -1 when there is none, or -2 if a task has begun
local wf = P .. 'w:' .. ARGV[1]
local have = redis.call('HMGET', wf, TASKS, PARTS, STOPPED, UNBEGUN)
if not have[1] or have[2] then return -1 end
if redis.call('PTTL', wf) >= 0 then return 0 end
if ARGV[2] == '1' and not have[4] and have[3] ~= BY_ORDER and have[3] ~= BY_REVOKE then return -2 end
if have[3] == BY_PAUSE or have[3] == BY_ORDER then redis.call('DEL', wf .. ':paused') end
redis.call('HSET', wf, STOPPED, BY_REVOKE)
redis.call('ZADD', P .. 'agenda', whole(now + SOON), ARGV[1] .. '/!revoke')
return 1
