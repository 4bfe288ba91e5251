-- turn stores the results of nodes, returns other nodes to their queues, and takes nodes. A call that is repeated, because its reply was
-- lost, changes nothing more and returns the nodes of the first one.
-- KEYS as in lib
-- ARGV[1] worker, [2] queues to take from, in order, '<most>:<queue>' separated by spaces, [3] entry of the ring of the first of them that
-- the worker has taken, or '', [4] flags, [5] most nodes to take, 0 for none, [6] id of the call, [7] lane or '': nodes that become ready in
-- it are taken first, [8] number of leases that end, [9] number of leases whose nodes go back; then field and value of each; then the
-- number of workflows, and of each its five facts, the number of arguments of its changes, and these, as in flow
-- flags are words: again: it may be a repeated call; direct: the changes are of nodes without leases; batch: [3] is the key of a batch, from
-- which at most [5] nodes of lane [7] are taken, if they are enough or one of them is due. The node of the first lease that ends is added before
-- returns {status, now, todos, '<lane> <unix µs at which the nodes were taken>', then the elements that were taken}.
-- status is ok, gone (the worker has lost leases that end: nothing was changed or taken, and todos has their positions) or paused (the
-- queue of the entry is paused: nothing was taken). todos has the results of close for each workflow. An element is {its text, graph or
-- false, time at which the plan with its nodes was stored or false, STOPPED of its workflow or false, then the record and the input of each node, each or false}. A graph is in the first
-- element of its workflow, unless it is large: the worker may have it
local MOST_KEYS = 256         -- fairness keys that one take reads
local AT_ONCE = 32            -- fairness keys read in one call
local MOST_FIELDS = 2500      -- nodes read in one call
local MOST_BYTES = 1048576    -- of records and inputs in a call; a node with more is taken alone
local MOST_GRAPH = 4096       -- bytes of a graph in a reply
local HIGH_IN_A_ROW = 8       -- takes of high priority after which one of normal priority is made
local me, flags, id = ARGV[1], ARGV[4], ARGV[6]
local lease = P .. 'lease:' .. me
local function has(f) return string.find(flags, f, 1, true) end

local status, todos, elements, takenFrom = 'ok', {}, {}, ''
local left, bytes = tonumber(ARGV[5]), 0
local sent = {} -- the workflows whose graphs are in elements

-- add reads the nodes a to b of an element and takes them, as far as there is room. For a single node b is
-- nil. It returns how many it added; nil if the workflow is gone or revoked. With new, it adds no nodes of a paused workflow, and
-- returns nil and true.
local function add(wf, prefix, a, b, lost, new)
  local scope = string.match(prefix, '^(.*):')
  local fields = {TASKS, STOPPED, sent[wf] and TASKS or GRAPH, PLANNED_AT .. (scope or ''), SPANS, UNBEGUN}
  for i = a or 0, b or 0 do
    local node = b and prefix .. whole(i) or prefix
    fields[#fields + 1] = node
    fields[#fields + 1] = INPUT .. node
  end
  local got = redis.pcall('HMGET', P .. 'w:' .. wf, unpack(fields))
  if got.err or not got[1] or got[2] == BY_REVOKE then return nil end
  if new and (got[2] == BY_PAUSE or got[2] == BY_ORDER) then return nil, true end
  local el = {'', fields[3] == GRAPH and got[3] and #got[3] <= MOST_GRAPH and got[3], scope and got[4] or false, got[2]}
  local n = 0
  for i = 7, #fields, 2 do
    if got[5] and not got[i] then
      local expires = expiry(got[5], fields[i])
      if expires ~= '' then got[i] = '{READY}|0|0|0|' .. expires .. '|' end
    end
    local size = (got[i] and #got[i] or 0) + (got[i + 1] and #got[i + 1] or 0)
    if (n > 0 or #elements > 0) and bytes + size > MOST_BYTES then break end
    bytes = bytes + size
    n = n + 1
    el[3 + 2 * n], el[4 + 2 * n] = got[i], got[i + 1]
  end
  if n == 0 then return 0 end
  if got[6] then redis.call('HDEL', P .. 'w:' .. wf, UNBEGUN) end
  sent[wf] = true
  left = left - n
  local span = prefix
  if b then span = prefix .. (n > 1 and whole(a) .. '-' .. whole(a + n - 1) or whole(a)) end
  el[1] = wf .. '/' .. span .. (lost ~= '' and '@' .. lost or '')
  elements[#elements + 1] = el
  return n
end

-- taking creates the functions that take nodes, only for a turn that does.
local function taking()
  -- takeElement takes the nodes of an element that there is room for, and returns the rest of the element, or nil.
  local function takeElement(lane, text)
    local wf, prefix, a, b, lost = read(text)
    if not wf then
      deepen(lane, -1) -- it cannot be decoded
      return nil
    end
    if left <= 0 or (lost ~= '' and #elements > 0) then
      left = 0
      return text
    end
    local most = lost == '' and math.min(left, MOST_FIELDS) or 1 -- a suspect is taken alone
    local last = b and math.min(b, a + most - 1)
    local n, paused = add(wf, prefix, a, last, lost, true)
    if not n then
      deepen(lane, -size(text))
      if paused then redis.call('RPUSH', P .. 'w:' .. wf .. ':paused', lane .. ' ' .. text) end
      return nil
    end
    deepen(lane, -n)
    if lost ~= '' or n < (b and last - a + 1 or 1) then left = 0 end
    if n == 0 then return text end
    if not b or a + n > b then return nil end
    return wf .. '/' .. prefix .. (a + n < b and whole(a + n) .. '-' .. whole(b) or whole(b)) .. (lost ~= '' and '@' .. lost or '')
  end

  -- drain takes nodes from the ready list of a fairness key as far as there is room. It reports whether
  -- the list has more.
  local function drain(lane, key)
    local list = P .. 'ready:' .. lane .. ':' .. key
    local len = redis.call('LLEN', list)
    while len > 0 and left > 0 do
      local some = redis.call('LPOP', list, math.min(len, left))
      local back = {}
      len = len - #some
      for _, text in ipairs(some) do
        local rest = takeElement(lane, text)
        if rest then back[#back + 1] = rest end
      end
      len = len + #back
      for i = #back, 1, -1 do redis.call('LPUSH', list, back[i]) end
    end
    return len > 0
  end

  -- The function that is returned takes nodes from the ring of a queue. All are of one lane. entry is one that was
  -- popped before, or nil; with normal, an entry of normal priority goes before the nodes of high priority.
  return function(q, entry, normal)
    local ring, high, looked, more = P .. 'ring:' .. q, P .. 'ring:h:' .. q, 0, false
    if entry == '+' and normal then
      redis.call('LPUSH', ring, entry)
      entry = nil
    end
    while left > 0 and looked < MOST_KEYS do
      local asked = math.min(left, AT_ONCE)
      local some = entry and {entry} or redis.call('LPOP', ring, asked)
      if not some then break end
      looked = looked + #some
      local back = {}
      for _, e in ipairs(some) do
        if left <= 0 then
          back[#back + 1] = e
        elseif e == '+' and (normal or #elements > 0) then
          back[#back + 1] = e
          if #elements > 0 then left = 0 end
        elseif e == '+' then
          for _ = 1, MOST_KEYS do
            local key = left > 0 and redis.call('LPOP', high)
            if not key then break end
            if drain('h:' .. q, key) then redis.call('RPUSH', high, key) end
          end
          if redis.call('EXISTS', high) == 1 then back[#back + 1] = e else deepen('k:' .. q, -1) end
          if #elements > 0 then takenFrom, left = 'h:' .. q, 0 end
        elseif string.sub(e, 1, 1) == '=' then
          if drain('n:' .. q, string.sub(e, 2)) then
            redis.call('RPUSH', ring, e)
            more = true
          else
            deepen('k:' .. q, -1)
          end
        else
          local first = e
          if not string.find(e, '/', 1, true) then -- a workflow of one node, which depth does not have
            first = string.gsub(e, '^[^@]+', '%0/0')
            openedSingle(string.match(e, '^[^@]*'))
            deepen('n:' .. q, 1)
          else
            deepen('k:' .. q, -1)
          end
          local rest = takeElement('n:' .. q, first)
          if rest then
            push('n:' .. q, string.match(rest, '^[^/]+'), {rest})
            deepen('n:' .. q, -size(rest)) -- push has counted it once more
          end
        end
      end
      for i = #back, 1, -1 do redis.call('LPUSH', ring, back[i]) end
      if normal and #back == #some and not entry then normal = false end -- there are only nodes of high priority
      if not entry and #some < asked and not more and #back == 0 then break end
      entry = nil
    end
    if #elements > 0 and takenFrom == '' then takenFrom = 'n:' .. q end
  end
end

-- keep writes the leases of the nodes that were taken.
local stamp = whole(T[1] * 1000000 + T[2])
local function keep(lane)
  local list = {}
  for _, el in ipairs(elements) do
    local wf, prefix, a, b, lost = read(el[1])
    local value = table.concat({stamp, id, lane, lost == '' and '0' or lost}, ' ')
    for i = a or 0, b or 0 do
      list[#list + 1] = wf .. '/' .. prefix .. (a and whole(i) or '')
      list[#list + 1] = value
    end
  end
  bulk('HSET', lease, list)
  redis.call('ZADD', P .. 'takers', 'NX', whole(now), string.sub(lane, 3) .. ':' .. me)
end

local finished, back = tonumber(ARGV[8]), tonumber(ARGV[9])

-- matching returns the fields of n leases in ARGV, from a position, that the worker has, their values, and the positions of the others.
local function matching(from, n)
  local fields, values, lost = {}, {}, {}
  for i = 0, n - 1, 1000 do
    local some = {}
    for j = i, math.min(i + 999, n - 1) do some[#some + 1] = ARGV[from + 2 * j] end
    for j, value in ipairs(redis.call('HMGET', lease, unpack(some))) do
      if value == ARGV[from + 2 * (i + j) - 1] then
        fields[#fields + 1], values[#values + 1] = some[j], value
      else
        lost[#lost + 1] = i + j - 1
      end
    end
  end
  return fields, values, lost
end

-- before has the leases of the nodes that the first call has taken.
local before = {}
if has('again') then
  local all = redis.call('HGETALL', lease)
  for i = 1, #all, 2 do
    if string.match(all[i + 1], '^%d+ (%S+) ') == id then before[#before + 1] = {all[i], all[i + 1]} end
  end
  table.sort(before, function(x, y) return x[1] < y[1] end)
end
local on = {}
local fields, _, lost = matching(10, #before == 0 and finished or 0)
if #lost > 0 then
  status, todos = 'gone', lost
elseif #before == 0 then
  bulk('HDEL', lease, fields)
  local p, f = 10 + 2 * (finished + back), nil
  local flows = tonumber(ARGV[p])
  p = p + 1
  for _ = 1, flows do
    f = f or flow(ARGV[7], left, on)
    local ok, todo = pcall(function()
      if not f.use(p) then return nil end
      f.apply(p + 6, not has('direct'))
      return f.close()
    end)
    if not ok then
      -- The data of the workflow cannot be decoded, unless Redis rejects writes.
      local why = tostring(type(todo) == 'table' and todo.err or todo)
      for _, refusal in ipairs({'OOM', 'MISCONF', 'READONLY', 'NOREPLICAS'}) do
        if string.find(why, refusal, 1, true) then error(todo) end
      end
      todo = {ARGV[p], -1, why}
    end
    if todo then todos[#todos + 1] = todo end
    p = p + 6 + ARGV[p + 5]
  end
  if back > 0 then
    local some, values = matching(10 + 2 * finished, back)
    local list = {}
    for i, field in ipairs(some) do list[2 * i - 1], list[2 * i] = field, values[i] end
    bulk('HDEL', lease, some)
    giveBack(list)
  end
end

-- gather takes nodes that wait for a batch: those that have waited the longest, if there are enough or the node of the first lease is due. Only
-- the first node of a list becomes ready when it is due, and takes the others; these become ready later, should it not come.
local LATER = 500 -- ms
local function gather(list)
  local size, some, due = left, {}, false

  -- waits returns the node of a member that waits, or nil. One of a paused workflow is parked once it is due.
  local function waits(member)
    local wf, node = string.match(member, '^([^/]+)/(.+)$')
    local have = redis.call('HMGET', P .. 'w:' .. wf, node, STOPPED)
    local lost, at = string.match(have[1] or '', '^{GATHERING}|%d*|(%d*)|(%d*)|')
    if not at or have[2] == BY_PAUSE or have[2] == BY_ORDER then return nil end
    return {member = member, wf = wf, node = node, rec = have[1], lost = lost ~= '0' and lost or '', at = tonumber(at)}
  end

  local new = finished > 0 and waits(ARGV[10])
  if new then
    due = new.at <= now + 1
    if not due and redis.call('EXISTS', list) == 1 then redis.call('ZADD', P .. 'agenda', whole(new.at + LATER), new.member) end
    redis.call('ZADD', list, whole(new.at), new.member)
    local ttl = math.max(0, new.at - now) + 60000
    if redis.call('PTTL', list) < ttl then redis.call('PEXPIRE', list, whole(ttl)) end
  end
  if not due and redis.call('ZCARD', list) < size then return end
  for _, member in ipairs(redis.call('ZRANGE', list, 0, 2 * size)) do
    local n = waits(member)
    if not n then
      redis.call('ZREM', list, member)
    elseif #some < size then
      some[#some + 1] = n
    end
  end
  if not due and #some < size then return end
  for _, n in ipairs(some) do
    local taken = add(n.wf, n.node, nil, nil, n.lost)
    if taken == 0 then break end -- there is no room for it
    redis.call('ZREM', list, n.member)
    if taken then -- else the workflow is gone
      local rec = READY .. string.sub(n.rec, 2)
      elements[#elements][5] = rec
      redis.call('HSET', P .. 'w:' .. n.wf, n.node, rec)
      redis.call('ZREM', P .. 'agenda', n.member)
    end
  end
  takenFrom = ARGV[7]
  if #elements > 0 then keep(takenFrom) end
end

if #before > 0 then
  local lane
  stamp, lane = string.match(before[1][2], '^(%d+) %S+ (%S+)')
  left, bytes = 100000, -math.huge
  for _, taken in ipairs(before) do
    local wf, node = string.match(taken[1], '^([^/]+)/(.+)$')
    local deaths = string.match(taken[2], '%d+$')
    add(wf, node, nil, nil, deaths ~= '0' and deaths or '')
  end
  takenFrom = #elements > 0 and lane or ''
elseif has('batch') then
  if status == 'ok' then gather(ARGV[3]) end
elseif #on > 0 then
  for _, o in ipairs(on) do
    local wf, node = read(o[1])
    if add(wf, node, nil, nil, '') == 0 then push(ARGV[7], o[2], {o[1]}) end -- there is no room for it
  end
  takenFrom = ARGV[7]
  if #elements > 0 then keep(takenFrom) end
elseif left > 0 and status == 'ok' then -- else the call may be a late copy, whose nodes no worker would run
  local entry = ARGV[3] ~= '' and redis.call('LREM', P .. 'taken:' .. string.match(ARGV[2], '^%d+:(%S+)') .. ':' .. me, 1, ARGV[3]) == 1 and ARGV[3] or nil
  local most, fill = left, nil
  for room, q in string.gmatch(ARGV[2], '(%d+):(%S+)') do
    left = math.min(most, tonumber(room))
    local k = P .. 'queue:' .. q
    local h = redis.call('HMGET', k, 'high', 'paused')
    if h[2] and entry then
      redis.call('LPUSH', P .. 'ring:' .. q, entry)
      status = 'paused'
    elseif not h[2] then
      fill = fill or taking()
      fill(q, entry, tonumber(h[1] or '0') >= HIGH_IN_A_ROW)
    end
    entry = nil
    if #elements > 0 then
      local sets = {'taken', whole(now)}
      if takenFrom == 'h:' .. q or h[1] and h[1] ~= '0' then
        sets[3], sets[4] = 'high', takenFrom == 'h:' .. q and whole((h[1] or 0) + 1) or '0'
      end
      redis.call('HSET', k, unpack(sets))
      keep(takenFrom)
    end
    if #elements > 0 or status == 'paused' then break end
  end
end
saveDepth()
counted()
return {status, whole(now), todos, takenFrom .. ' ' .. stamp, unpack(elements)}
