-- begin lets a worker run nodes, those that are still to be run.
-- KEYS[1] agenda, KEYS[2] running, KEYS[3..] workflow hashes, one for each item
-- ARGV as in lib. An item: [1] workflow, [2] node, [3] epoch of the delivery, [4] worker, [5] graph
-- fields wanted (comma), [6] 1 if the worker does not run it: what Redis says it does, it has not heard of
-- returns per item {status, attempts so far, losses so far, now, input, graph…}; status: run, gone (no
-- such workflow), done, stale (another delivery is due), busy (runs, or runs elsewhere)
local names, listed, gone, written = {}, nil, {}, false

-- unlist takes the node of an item out of the agenda and reports whether it was there. That is asked for all
-- items at once, and those after the first are taken out together. The first is at once: a script that has
-- written may write on when memory is full.
local function unlist(i)
  if #names == 0 then
    local p = 2
    for k = 1, int(ARGV[1]) do
      names[k] = ARGV[p + 1] .. '/' .. ARGV[p + 2]
      p = p + 1 + int(ARGV[p])
    end
    if #names > 1 then
      listed = {}
      for k = 1, #names, 1000 do
        local part = redis.call('ZMSCORE', agenda, unpack(names, k, math.min(k + 999, #names)))
        for m = 1, #part do listed[k + m - 1] = part[m] end
      end
    end
  end
  if not listed then return redis.call('ZREM', agenda, names[i]) == 1 end
  if not listed[i] then return false end
  if not written then
    redis.call('ZREM', agenda, names[i])
    written = true
  else
    gone[#gone + 1] = names[i]
  end
  return true
end

local out = each(function(i, p)
  wf = KEYS[2 + i]
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
  if not unlist(i) and not rec then return {'stale'} end
  redis.call('HSET', wf, node, 'R|' .. epoch_ .. '|' .. attempt .. '|' .. lost .. '|' .. date .. '|' .. who)
  began[#began + 1] = names[i]
  began[#began + 1] = who
  local out = {'run', attempt, lost, date, got[4] or false}
  if ARGV[p + 4] ~= '' then
    for f in string.gmatch(ARGV[p + 4], '[^,]+') do out[#out + 1] = redis.call('HGET', wf, f) or false end
  end
  return out
end)
if #gone > 0 then bulk('ZREM', agenda, gone) end
return out
