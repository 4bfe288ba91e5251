-- log appends log lines of tasks to a workflow, and removes the oldest ones.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] number of lines to keep, [3] and others: lines
-- returns 1, or 0 if there is no such workflow
local wf = P .. 'w:' .. ARGV[1]
local ttl = redis.call('PTTL', wf)
if ttl == -2 then return 0 end
redis.call('RPUSH', wf .. ':log', unpack(ARGV, 3))
redis.call('LTRIM', wf .. ':log', -ARGV[2], -1)
if ttl >= 0 then redis.call('PEXPIRE', wf .. ':log', ttl) end
return 1
