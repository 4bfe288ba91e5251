-- revoke stops a workflow: from now on nothing of it is released, added or begun. Its nodes become
-- terminal by advance; until the agenda entry is gone, someone will see to that.
-- KEYS[1] workflow hash, KEYS[2] agenda
-- ARGV[1] workflow, [2..] groups are looked up by the caller
-- returns 1, or 0 when there is nothing to stop
if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
if redis.call('PTTL', KEYS[1]) >= 0 then return 0 end
redis.call('HSET', KEYS[1], 'x', '1')
local clock = redis.call('TIME')
redis.call('ZADD', KEYS[2], clock[1] * 1000 + 2000, ARGV[1] .. '/!revoke')
return 1
