-- revoke stops a workflow: from now on none of its nodes is released, added or taken. The caller makes them terminal
-- with turn; until that is done, the agenda has an entry for it.
-- KEYS as in lib
-- ARGV[1] reference of the workflow
-- returns 1, 0 when it has ended, or -1 when there is none
local wf = P .. 'w:' .. ARGV[1]
local have = redis.call('HMGET', wf, TASKS, PARTS, STOPPED, LIMITED)
if not have[1] or have[2] then return -1 end
if redis.call('PTTL', wf) >= 0 then return 0 end
if have[3] == BY_PAUSE then redis.call('DEL', wf .. ':paused') end
if have[4] then redis.call('DEL', wf .. ':limited') end
redis.call('HSET', wf, STOPPED, BY_REVOKE)
redis.call('ZADD', P .. 'agenda', whole(now + SOON), ARGV[1] .. '/!revoke')
return 1
