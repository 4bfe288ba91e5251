-- turn ends a batch: it makes the changes of its results and returns the nodes that were not started to their queues.
-- Then it takes the next batch. A call that is repeated, because its reply was lost, changes nothing and returns the
-- same batch.
-- KEYS as in lib
-- ARGV[1] worker, [2] queue, [3] other queues of the worker, separated by spaces, [4] flags, [5] most nodes to take,
-- [6] least number of ready nodes that is worth another wake-up, [7] id of the new batch, [8] '<id>@<unix µs at which
-- it was taken>' of the batch that ends or '', [9] lease of its nodes that continue under the new id or ''; it gets the '!'
-- of the old one, [10] lease of its nodes that go back or '', [11] workflows whose graphs the worker has (' id id '),
-- [12] generation of the wake-up, [13] lane of the batch or '': nodes that become ready in it are taken first,
-- [14] number of workflows; then of each its five facts, the number of arguments of its changes, and these, as in flow
-- flags are words: arrive: the slot was woken up; take: it takes a batch; leave: it takes none for some time; direct: the
-- changes are of nodes without a batch
-- returns {status, now, todos, '<lane> <unix µs at which the batch was taken> <cancelled workflow, with ! if by its deadline>…', then the elements of the batch}.
-- status is ok, gone (the worker has lost the batch: nothing was changed or taken), yield (another queue has
-- a wake-up: nothing was taken) or paused (the queue is paused: nothing was taken). todos has the results of close for each workflow. An element is {its text, graph or false, time at which
-- the plan with its nodes was stored or false, then the record of each node or false}. A graph is in the first
-- element of its workflow, unless the worker has it
local MOST_KEYS = 256         -- fairness keys that one take reads
local AT_ONCE = 32            -- fairness keys read in one call
local MOST_FIELDS = 5000      -- nodes read in one call
local MOST_BYTES = 1048576    -- of records in a batch; a larger record is taken alone
local YIELD = 1000            -- ms in which a wake-up of another queue makes a slot end
local HIGH_IN_A_ROW = 8       -- batches of high priority after which one of normal priority is taken
local me, q, flags, id = ARGV[1], ARGV[2], ARGV[4], ARGV[7]
local wake, lease = P .. 'wake:' .. q, P .. 'lease:' .. me
local function has(f) return string.find(flags, f, 1, true) end

local status, todos, elements, takenFrom = 'ok', {}, {}, ''
local left, bytes = tonumber(ARGV[5]), 0
local cancelled = '' -- workflows in elements, each after a space
local sent = {} -- the workflows whose graphs are in elements

-- add reads the nodes a to b of an element and adds them to the batch, as far as there is room. For a single node b is
-- nil. It returns how many it added; nil if the workflow is gone or revoked. With new, it adds no nodes of a paused workflow, and
-- returns nil and true.
local function add(wf, prefix, a, b, lost, new)
  local scope = string.match(prefix, '^(.*):')
  local fields = {TASKS, STOPPED, GRAPH, PLANNED_AT .. (scope or ''), SPANS, UNBEGUN}
  if sent[wf] or string.find(ARGV[11], ' ' .. wf .. ' ', 1, true) then fields[3] = TASKS end
  if b then
    for i = a, b do fields[#fields + 1] = prefix .. whole(i) end
  else
    fields[7] = prefix
  end
  local got = redis.pcall('HMGET', P .. 'w:' .. wf, unpack(fields))
  if got.err or not got[1] or got[2] == BY_REVOKE then return nil end
  if new and (got[2] == BY_PAUSE or got[2] == BY_ORDER) then return nil, true end
  if (got[2] == BY_CANCEL or got[2] == BY_DEADLINE) and not sent[wf] then cancelled = cancelled .. ' ' .. wf .. (got[2] == BY_DEADLINE and '!' or '') end
  local el = {'', fields[3] == GRAPH and got[3], scope and got[4] or false}
  local n = 0
  for i = 7, #fields do
    if got[5] and (not got[i] or string.sub(got[i], 1, 1) == GIVEN) then
      local expires = expiry(got[5], fields[i])
      if expires ~= '' then got[i] = '{READY}|0|0|0|' .. expires .. '||' .. string.sub(got[i] or '', 2) end
    end
    local size = got[i] and #got[i] or 0
    if (n > 0 or #elements > 0) and bytes + size > MOST_BYTES then break end
    bytes = bytes + size
    n = n + 1
    el[3 + n] = got[i]
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

-- taking creates the functions that take a batch, only for a turn that does.
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
    local most = lost == '' and math.min(left, MOST_FIELDS) or 1 -- a suspect is alone in its batch
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

  -- drain takes nodes from the ready list of a fairness key up to the remaining size of the batch. It reports whether
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

  -- The function that is returned fills the batch from a lane, one fairness key after the other.
  return function(lane)
    local ring, looked, more = P .. 'ring:' .. lane, 0, false
    while left > 0 and looked < MOST_KEYS do
      local asked = math.min(left, AT_ONCE)
      local keys = redis.call('LPOP', ring, asked)
      if not keys then break end
      looked = looked + #keys
      local back = {}
      for _, key in ipairs(keys) do
        if left <= 0 then
          back[#back + 1] = key
        elseif string.find(key, '/', 1, true) then -- not a key, but an element: see submit
          local rest = takeElement(lane, key)
          if rest then
            push(lane, string.match(rest, '^[^/]+'), {rest})
            deepen(lane, -size(rest)) -- push has counted it once more
          end
        else
          if drain(lane, key) then
            redis.call('RPUSH', ring, key)
            more = true
          end
        end
      end
      for i = #back, 1, -1 do redis.call('LPUSH', ring, back[i]) end
      if #keys < asked and not more then break end
    end
    if #elements > 0 then takenFrom = lane end
  end
end

-- keep writes the lease of the batch.
local stamp = whole(T[1] * 1000000 + T[2])
local function keep(lane)
  local els = {}
  for i, el in ipairs(elements) do els[i] = el[1] end
  redis.call('HSET', lease, id, stamp .. ' ' .. lane .. ' ' .. table.concat(els, ','))
end

-- The time, in µs, distinguishes the batch from one with the same id that a late copy of the call took.
local fenced, entered, before = false, '', false
if ARGV[8] ~= '' then
  local old, at = string.match(ARGV[8], '^([^@]+)@(%d+)$')
  local leases = redis.call('HMGET', lease, old, id)
  local taken, mark = string.match(leases[1] or '', '^(%d+)(!?)')
  before = has('take') and leases[2]
  fenced, entered = taken == at, mark
  if fenced then redis.call('HDEL', lease, old) end
elseif has('take') then
  before = redis.call('HGET', lease, id)
end
local on = {}
if fenced or has('direct') then
  if ARGV[9] ~= '' then redis.call('HSET', lease, id, (string.gsub(ARGV[9], '^%d+', '%0' .. entered))) end
  local p, f = 15, nil
  for _ = 1, tonumber(ARGV[14]) do
    f = f or flow(ARGV[13], left, on)
    local ok, todo = pcall(function()
      if not f.use(p) then return nil end
      f.apply(p + 6, fenced)
      return f.close(has('take') and q or '')
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
  if ARGV[10] ~= '' then giveBack(ARGV[10]) end
elseif ARGV[8] ~= '' then
  status = 'gone'
end

if before then
  -- This is a repeated call: the reply of the first one was lost.
  local lane, els
  stamp, lane, els = string.match(before, '^(%d+)!? (%S+) (%S+)$')
  stamp = stamp or whole(T[1] * 1000000 + T[2])
  left, bytes = 100000, -math.huge
  for el in string.gmatch(els or '', '[^,]+') do
    local wf, prefix, a, b, lost = read(el)
    if wf then add(wf, prefix, a, b and math.min(b, a + MOST_FIELDS - 1), lost) end
  end
  takenFrom = #elements > 0 and lane or ''
elseif #on > 0 then
  for _, o in ipairs(on) do
    local wf, node = read(o[1])
    if add(wf, node, nil, nil, '') == 0 then push(ARGV[13], o[2], {o[1]}) end -- there is no room for it
  end
  takenFrom = ARGV[13]
  if #elements > 0 then keep(takenFrom) end
  if waiting(q) then want(q) end -- for other slots
elseif has('take') and (has('arrive') or waiting(q)) then
  local h = redis.call('HMGET', wake, 'generation', 'ready:n', 'ready:h', 'high', 'paused')
  local sets = {}
  local function set(field, value)
    sets[#sets + 1] = field
    sets[#sets + 1] = value
  end
  if h[5] and status ~= 'gone' then
    status = 'paused'
  elseif has('arrive') and (h[1] or '0') == ARGV[12] then -- else it is an old wake-up, in the place of which another was pushed
    set('pending', '')
    set('generation', whole((h[1] or 0) + 1))
  end
  if not has('arrive') and status == 'ok' then
    for other in string.gmatch(ARGV[3], '%S+') do
      -- A wake-up that has been pending for longer is of a queue that is paused or full.
      local since = tonumber(redis.call('HGET', P .. 'wake:' .. other, 'pending') or '')
      if since and math.abs(now - since) < YIELD then status = 'yield' end
    end
  end
  if status == 'yield' then
    want(q)
  elseif status ~= 'paused' then
    -- Half of the ready nodes are left for other slots, unless there are too few for that.
    local all = math.max(tonumber(h[2] or '0') + (depth['n:' .. q] or 0), 0) + math.max(tonumber(h[3] or '0') + (depth['h:' .. q] or 0), 0)
    if all > tonumber(ARGV[6]) then left = math.min(left, math.ceil(all / 2)) end
    local first, second = 'h:' .. q, 'n:' .. q
    if tonumber(h[4] or '0') >= HIGH_IN_A_ROW or tonumber(h[3] or '0') + (depth[first] or 0) <= 0 then
      first, second = second, first
    end
    if status ~= 'gone' then -- if it is gone, the call may be a late copy, whose batch no worker would run
      local take = taking()
      take(first)
      if #elements == 0 then take(second) end
    end
    if #elements > 0 then
      if takenFrom == 'h:' .. q then
        set('high', whole((h[4] or 0) + 1))
      elseif h[4] and h[4] ~= '0' then
        set('high', '0')
      end
      set('taken', whole(now))
    end
    for i, lane in ipairs({'n:' .. q, 'h:' .. q}) do
      if (depth[lane] or 0) ~= 0 then
        set('ready:' .. string.sub(lane, 1, 1), whole((h[i + 1] or 0) + depth[lane]))
        depth[lane] = 0
      end
    end
    if #sets > 0 then redis.call('HSET', wake, unpack(sets)) end
    if #elements > 0 then
      keep(takenFrom)
      if not fenced then redis.call('SADD', P .. 'holders', me) end
      local rest = all
      for _, el in ipairs(elements) do rest = rest - (#el - 3) end
      if rest >= tonumber(ARGV[6]) and waiting(q) then want(q) end
    elseif waiting(q) then
      want(q)
    end
  end
end
if has('leave') and waiting(q) then want(q) end
saveDepth()
if counted then counted() end
return {status, whole(now), todos, takenFrom .. ' ' .. stamp .. cancelled, unpack(elements)}
