-- Shared by the scripts that return nodes to their queues; appended to lib.
-- KEYS as in lib
-- ARGV none
-- returns nothing: it defines giveBack

-- giveBack puts leased nodes back at the head of their ready lists, and returns their number. list has the field and the value of each
-- lease, '<µs> <call> <lane> <deaths>'. If worker is given, it has died: its death is counted for them.
local function giveBack(list, worker)
  local lists, order, flows, n = {}, {}, {}, 0
  for i = #list - 1, 1, -2 do -- each is put before those after it
    local wf, node = string.match(list[i], '^([^/]+)/(.+)$')
    local taken, lane, lost = string.match(list[i + 1], '^(%d+) %S+ (%S+) (%d+)$')
    if wf and lane then
      flows[wf] = flows[wf] or redis.call('HMGET', P .. 'w:' .. wf, TASKS, STOPPED, FAIRNESS)
      local have = flows[wf]
      if have[1] and have[2] ~= BY_REVOKE then
        if worker then
          lost = lost + 1
          remember(P .. 'w:' .. wf, node, '|' .. whole(taken / 1000) .. '|' .. whole(now) .. '|lost|' .. worker .. '|["lost","the worker died"]')
        end
        local key = have[3] or wf
        local els = lists[lane .. ' ' .. key]
        if not els then
          els = {lane = lane, key = key}
          lists[lane .. ' ' .. key], order[#order + 1] = els, els
        end
        els[#els + 1] = wf .. '/' .. node .. (tonumber(lost) > 0 and '@' .. whole(lost) or '')
        n = n + 1
      end
    end
  end
  for _, els in ipairs(order) do push(els.lane, els.key, els, true) end
  return n
end
