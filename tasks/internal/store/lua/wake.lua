-- Shared by the scripts that make waiting nodes ready; appended to lib.
-- KEYS as in lib
-- returns nothing: it defines wake

-- wake makes a node ready that waits: have has the fields FAIRNESS, REVISION and its record. With head it goes to the head of its
-- ready list. It returns false if the node is in no state of states.
local function wake(ref, node, have, states, head)
  local state, attempts, lost, due, expires, lane = string.match(have[3] or '', '^([' .. states .. '])|(%d*)|(%d*)|(%d*)|(%d*)|([^|]*)$')
  if not state then return false end
  redis.call('HSET', P .. 'w:' .. ref, node, table.concat({READY, attempts, lost, state == GATHERING and due or '0', expires, lane}, '|'),
    REVISION, whole(math.max(now, (tonumber(have[2] or '') or 0) + 1)))
  push(lane, have[1] or ref, {ref .. '/' .. node .. (lost ~= '0' and lost ~= '' and '@' .. lost or '')}, head)
  return true
end
