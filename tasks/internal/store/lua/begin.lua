-- begin lets a worker run nodes, those that are still to be run.
-- KEYS[1] agenda, KEYS[2] running, KEYS[3..] workflow hashes, one for each item
-- ARGV as in lib. An item: [1] workflow, [2] node, [3] epoch of the delivery, [4] worker, [5] graph
-- fields wanted (comma), [6] 1 if the worker does not run it: what Redis says it does, it has not heard of
-- returns per item {status, attempts so far, losses so far, now, input, graph…}; status: run, gone (no
-- such workflow), done, stale (another delivery is due), busy (runs, or runs elsewhere)
return each(function(i, p)
  wf, W = KEYS[2 + i], ARGV[p]
  local node, epoch_, who = ARGV[p + 1], ARGV[p + 2], ARGV[p + 3]
  local got = redis.call('HMGET', wf, node, 'n', 'x', 'a' .. node)
  if not got[2] then return {'gone'} end
  local rec = got[1]
  local attempt, lost = '0', '0'
  if rec then
    local st, epoch
    st, epoch, attempt, lost = string.match(rec, '^(%a)|(%d*)|(%d*)|(%d*)|')
    local mine = ARGV[p + 5] == '1' and st == 'R' and string.match(rec, '|([^|]*)$') == who
    if st == 'R' and epoch == epoch_ and not mine then return {'busy'} end
    if st ~= 'Q' and st ~= 'R' then return {'done'} end
    if epoch ~= epoch_ or (st == 'R' and not mine) then return {'stale'} end
  elseif epoch_ ~= '0' then
    return {'stale'}
  end
  if got[3] then return {'done'} end
  -- A node without a record was released for its first run if the agenda has it, and waits otherwise.
  if redis.call('ZREM', agenda, W .. '/' .. node) == 0 and not rec then return {'stale'} end
  redis.call('HSET', wf, node, 'R|' .. epoch_ .. '|' .. attempt .. '|' .. lost .. '|' .. whole(now) .. '|' .. who)
  begins(node, who)
  local out = {'run', attempt, lost, whole(now), got[4] or false}
  if ARGV[p + 4] ~= '' then
    for f in string.gmatch(ARGV[p + 4], '[^,]+') do out[#out + 1] = redis.call('HGET', wf, f) or false end
  end
  return out
end)
