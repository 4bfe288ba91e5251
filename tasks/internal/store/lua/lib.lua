-- Shared by the scripts that work on a shard; put in front of each of them.
-- KEYS[1] prefix of the keys of the shard, which share its slot, [2] a key that does not exist, see scriptKeys
local P = KEYS[1]
local T = redis.call('TIME')
local now = T[1] * 1000 + math.floor(T[2] / 1000)
local SOON = 2000       -- ms after which a worker takes a step that the caller was told to take

-- channel returns the name of a channel of the namespace.
local function channel(name) return string.match(P, '^[^{]*') .. name end

-- whole formats a number as an integer. Redis itself would write it with up to 17 digits and a fraction.
local function whole(n) return string.format('%d', n) end

local function bulk(cmd, key, list)
  for i = 1, #list, 1000 do redis.call(cmd, key, unpack(list, i, math.min(i + 999, #list))) end
end

-- chosenKey returns the key with the latest workflow of the id in a reference; nil for a generated id.
local function chosenKey(ref)
  local id = string.match(ref, '^([^~]+)~.')
  return id and P .. 'id:' .. id
end

-- The ring of a queue has its ready nodes; workers block on it. An entry is one of
--   <workflow>[@deaths]   a workflow of one node, see submit1
--   <workflow>/<span>     the first nodes of a workflow
--   =<key>                a fairness key with a ready list
--   +                     the queue has ready nodes of high priority
-- A lane is 'n:queue' or, for high priority, 'h:queue'. Nodes without a task have lane '-'.

-- depth has the changes of the numbers of ready nodes, by lane, except for workflows of one node. Lane 'k:queue' counts the
-- entries of the last three kinds.
local depth = {}

local function deepen(lane, n) depth[lane] = (depth[lane] or 0) + n end

local function saveDepth()
  for lane, n in pairs(depth) do
    if n ~= 0 then redis.call('HINCRBY', P .. 'queue:' .. string.sub(lane, 3), 'ready:' .. string.sub(lane, 1, 1), whole(n)) end
  end
end

-- read returns the parts of an element: workflow, prefix, first, last, deaths ('' for none). For a single node the
-- prefix is its id, and first and last are nil. It returns nil if the element is damaged.
local function read(el)
  local wf, span, lost = string.match(el, '^([^/]+)/([^@]+)@?(%d*)$')
  if not wf then return nil end
  local prefix, a, b = string.match(span, '^(.-)(%d+)%-(%d+)$')
  if not prefix then return wf, span, nil, nil, lost end
  a, b = tonumber(a), tonumber(b)
  if a > b then return nil end
  return wf, prefix, a, b, lost
end

-- expiry returns the expiry of a node whose record has no times, according to the field SPANS of its workflow; '' for
-- never.
local function expiry(spans, node)
  if not spans then return '' end
  local prefix, n = string.match(node, '^(.-)(%d+)$')
  n = tonumber(n)
  for p, a, b, expires in string.gmatch(spans, '(%S-)(%d+)%-(%d+) %d+ (%d*) [^\n]*\n') do
    if p == prefix and tonumber(a) <= n and n <= tonumber(b) then return expires end
  end
  return ''
end

-- size returns how many nodes an element has.
local function size(el)
  if not string.find(el, '-', 1, true) then return 1 end
  local a, b = string.match(el, '(%d+)%-(%d+)@?%d*$')
  return a and b - a + 1 or 1
end

-- push puts elements on the ready list of a fairness key: at the end or, with head, at the head in reverse order. A key whose list
-- was empty is put on the ring.
local function push(lane, key, els, head)
  local list, q, add = P .. 'ready:' .. lane .. ':' .. key, string.sub(lane, 3), head and 'LPUSH' or 'RPUSH'
  local had = redis.call('LLEN', list) > 0
  bulk(add, list, els)
  local n = 0
  for i = 1, #els do n = n + size(els[i]) end
  deepen(lane, n)
  if had then return end
  redis.call('ZADD', P .. 'queues', math.floor(now / 3600000), q)
  if string.sub(lane, 1, 1) == 'n' then
    redis.call(add, P .. 'ring:' .. q, '=' .. key)
  elseif redis.call(add, P .. 'ring:h:' .. q, key) == 1 then
    redis.call('LPUSH', P .. 'ring:' .. q, '+')
  else
    return
  end
  deepen('k:' .. q, 1)
end

-- unlist takes a fairness key whose ready list is empty now off the ring of a lane.
local function unlist(lane, key)
  local q = string.sub(lane, 3)
  local entry = '=' .. key
  if string.sub(lane, 1, 1) == 'h' then
    redis.call('LREM', P .. 'ring:' .. lane, 1, key)
    if redis.call('EXISTS', P .. 'ring:' .. lane) == 1 then return end
    entry = '+'
  end
  if redis.call('LREM', P .. 'ring:' .. q, 1, entry) == 1 then deepen('k:' .. q, -1) end
end
