-- Shared by the scripts that return batches to their queues; appended to lib.
-- KEYS as in lib
-- ARGV none
-- returns nothing: it defines giveBack
local SUSPECT = 3 -- deaths, as store.Suspect

-- giveBack puts the nodes of a batch back at the head of their ready lists, and returns how many elements that were.
-- value is the lease, '<µs>[!] <lane> <element>,…'. If worker is given, it has died: its death is counted for them.
local function giveBack(value, worker)
  local taken, entered, lane, els = string.match(value, '^(%d+)(!?) (%S+) (%S+)$')
  if not lane then return 0 end
  local lists, order, n = {}, {}, 0
  for el in string.gmatch(els, '[^,]+') do
    local wf, prefix, a, b, lost = read(el)
    local have = wf and redis.call('HMGET', P .. 'w:' .. wf, TASKS, STOPPED, FAIRNESS)
    if have and have[1] and have[2] ~= BY_REVOKE then
      local c = tonumber(lost) or 0
      local died = worker and (c < SUSPECT or entered == '!')
      if died then c = c + 1 end
      local key = have[3] or wf
      if not lists[key] then
        lists[key] = {}
        order[#order + 1] = key
      end
      if died then
        for i = a or 0, b or 0 do remember(P .. 'w:' .. wf, prefix .. (a and whole(i) or ''), '|' .. whole(taken / 1000) .. '|' .. whole(now) .. '|lost|' .. worker .. '|["lost","the worker died"]') end
      end
      local span = a and prefix .. whole(a) .. '-' .. whole(b) or prefix
      table.insert(lists[key], 1, wf .. '/' .. span .. (c > 0 and '@' .. whole(c) or ''))
      n = n + 1
    end
  end
  for i = #order, 1, -1 do push(lane, order[i], lists[order[i]], true) end
  return n
end
