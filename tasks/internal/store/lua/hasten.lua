-- hasten makes nodes ready that wait for a limit or for a handler.
-- KEYS as in lib
-- ARGV[1] LIMITED or UNHANDLED, [2] '<queue> <task>' if they are listed as nodes without a handler, or '', then of each node: reference of
-- the workflow, node
-- returns for each node, in order, 1 if it was in this state, or its wait for a limit has just ended, 2 if it has ended and cannot come
-- into it any more, or 0
local out, over = {}, {}
for i = #ARGV - 1, 3, -2 do -- each is put at the head of its ready list
  local ref, node, state = ARGV[i], ARGV[i + 1], 0
  local have = redis.call('HMGET', P .. 'w:' .. ref, FAIRNESS, REVISION, node, TASKS, STOPPED)
  if not have[4] or have[5] == BY_REVOKE or have[3] and string.find(TERMINAL, string.sub(have[3], 1, 1), 1, true) then
    state = 2
  elseif wake(ref, node, have, ARGV[1], true) then
    redis.call('ZREM', P .. 'agenda', ref .. '/' .. node)
    state = 1
  elseif ARGV[1] == LIMITED and string.sub(have[3] or '', 1, 1) == READY then
    state = 1
  end
  out[(i - 1) / 2] = state
  if state ~= 0 then over[#over + 1] = ref .. '/' .. node end
end
if ARGV[2] ~= '' then
  local nodes = P .. 'unhandled:' .. ARGV[2]
  bulk('ZREM', nodes, over)
  if redis.call('EXISTS', nodes) == 0 then redis.call('ZREM', P .. 'unhandled', ARGV[2]) end
end
saveDepth()
return out
