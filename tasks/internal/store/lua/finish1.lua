-- finish1 stores the success of a workflow that submit1 has stored, if the worker has its entry, and takes the next entry.
-- KEYS as in lib
-- ARGV[1] worker, [2] queue, [3] entry, [4] reference, [5] record, [6] ms to keep the workflow, [7] when it was sent (unix ms), [8] caption,
-- [9] queues to take from, in order, separated by spaces
-- returns {1 if the result counts, 0 if it does not, or 2 if turn must store it: nothing was changed or taken; then queue, entry,
-- whether the queue is paused and, for a workflow of one node, its graph, record, STOPPED, number of tasks and input, if one was taken}
local P, w = KEYS[1], KEYS[1] .. 'w:' .. ARGV[4]
local have, out = redis.call('HMGET', w, '0', STOPPED, REVISION, TASKS), {1}
if have[1] == ARGV[5] then
  -- The reply of the first call was lost.
elseif have[1] or have[2] or have[3] or not have[4] then
  return {2}
elseif redis.call('LREM', P .. 'taken:' .. ARGV[2] .. ':' .. ARGV[1], 1, ARGV[3]) == 0 then
  out[1] = 0
else
  local T = redis.call('TIME') -- the index has the order of these calls
  local now = T[1] * 1000 + math.floor(T[2] / 1000)
  redis.call('HSET', w, '0', ARGV[5], TASKS_ENDED, '1', REVISION, string.format('%d', now))
  redis.call('PEXPIRE', w, ARGV[6])
  redis.call('ZADD', P .. 'done:' .. SUCCEEDED, now, ARGV[4] .. ' ' .. ARGV[7] .. ' ' .. ARGV[8])
  redis.call('PUBLISH', string.match(P, '^[^{]*') .. 'done:' .. ARGV[4], '1')
end
for q in string.gmatch(ARGV[9], '%S+') do
  local entry = redis.call('LMOVE', P .. 'ring:' .. q, P .. 'taken:' .. q .. ':' .. ARGV[1], 'LEFT', 'RIGHT')
  if entry then
    out[2], out[3], out[4] = q, entry, redis.call('HGET', P .. 'queue:' .. q, 'paused')
    if string.find(entry, '^[^=+/]+$') then out[5] = redis.call('HMGET', P .. 'w:' .. string.match(entry, '^[^@]+'), GRAPH, '0', STOPPED, TASKS, INPUT .. '0') end
    return out
  end
end
return out
