-- admit makes nodes that are parked because of a limit ready.
-- KEYS as in lib
-- ARGV of each node: reference of the workflow, node
-- returns for each node, in order, 1 if it was parked, 2 if it has ended and cannot be parked any more, or 0
local out = {}
for i = #ARGV - 1, 1, -2 do -- each is put at the head of its ready list
  local wf, node, state = P .. 'w:' .. ARGV[i], ARGV[i + 1], 0
  local parked = redis.call('HGET', wf .. ':limited', node)
  local have = redis.call('HMGET', wf, TASKS, STOPPED, FAIRNESS, node)
  if not have[1] or have[2] == BY_REVOKE or have[4] and string.find(TERMINAL, string.sub(have[4], 1, 1), 1, true) then
    state = 2
  elseif parked then
    local lane, el = string.match(parked, '^(%S+) (%S+)')
    push(lane, have[3] or ARGV[i], {el}, true)
    state = 1
  end
  if parked then redis.call('HDEL', wf .. ':limited', node) end
  out[(i + 1) / 2] = state
end
saveDepth()
return out
