-- abort gives up a workflow that cannot be read: its nodes are not taken any more, and it expires.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] failure, [3] retention ms, [4] worker, [5] field and [6] value of the lease with which it was
-- found, or '', [7] its caption, [8] when it was sent (unix ms)
-- returns 1, or 0 if it has ended or the worker does not have the lease any more
local wf = P .. 'w:' .. ARGV[1]
if ARGV[5] ~= '' and redis.call('HGET', P .. 'lease:' .. ARGV[4], ARGV[5]) ~= ARGV[6] then return 0 end
if redis.call('PTTL', wf) ~= -1 then return 0 end

ended(ARGV[1], ARGV[7], FAILED, ARGV[8])
redis.call('HSET', wf, ABORTED, ARGV[2], STOPPED, BY_REVOKE)
redis.call('DEL', wf .. ':paused')
redis.call('PEXPIRE', wf, ARGV[3])
redis.call('PEXPIRE', wf .. ':log', ARGV[3])
redis.call('PEXPIRE', wf .. ':out', ARGV[3])
local chosen = chosenKey(ARGV[1])
if chosen and redis.call('GET', chosen) == ARGV[1] then redis.call('PEXPIRE', chosen, ARGV[3]) end
for _, f in ipairs(redis.call('HKEYS', wf)) do
  if string.sub(f, 1, 1) == HELD then redis.call('DEL', wf .. ':' .. f, wf .. ':' .. QUEUED .. string.sub(f, 2)) end
end
redis.call('PUBLISH', channel('done:' .. ARGV[1]), 1)
return 1
