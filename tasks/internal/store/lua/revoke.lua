-- revoke stops a workflow: from now on nothing of it is released, added or taken. Its nodes become terminal by turn;
-- until its line in the agenda is gone, someone will see to that.
-- KEYS as in lib
-- ARGV[1] workflow
-- returns 1, 0 when it has ended, or -1 when there is none
local wf = P .. 'w:' .. ARGV[1]
local have = redis.call('HMGET', wf, 'n', 'u')
if not have[1] or have[2] then return -1 end
if redis.call('PTTL', wf) >= 0 then return 0 end
redis.call('HSET', wf, 'x', '1')
redis.call('ZADD', P .. 'agenda', whole(now + SOON), ARGV[1] .. '/!revoke')
return 1
