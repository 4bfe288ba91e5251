-- Shared by the scripts that work on a shard; put in front of each of them.
-- KEYS[1] prefix of the keys of the shard, which share its slot
local P = KEYS[1]
local T = redis.call('TIME')
local now = T[1] * 1000 + math.floor(T[2] / 1000)
local SOON = 2000       -- ms after which a worker does what the caller was told to do, and did not
local FRESH = 50        -- ms for which a take shows that a taker comes back for more

-- Redis writes numbers with 17 digits; it is handed strings.
local function whole(n) return string.format('%d', n) end

local function bulk(cmd, key, list)
  for i = 1, #list, 1000 do redis.call(cmd, key, unpack(list, i, math.min(i + 999, #list))) end
end

-- Wake-tasks.

-- wants are the wake-tasks that the caller is to send: queue, generation, …
local wants, wanted = {}, {}

-- want asks for a wake-task of a queue, unless one is on its way or, with spare, a taker will come by itself.
local function want(q, spare)
  if wanted[q] then return end
  local k = P .. 'wake:' .. q
  local h = redis.call('HMGET', k, 'p', 'g', 'n', 't')
  if h[1] then return end
  if spare and tonumber(h[3] or '0') > 0 and math.abs(now - tonumber(h[4] or '0')) <= FRESH then return end
  wanted[q] = true
  redis.call('HSET', k, 'p', whole(now))
  wants[#wants + 1] = q
  wants[#wants + 1] = h[2] or '0'
end

-- Ready lists. A lane is 'n:queue' or, for high priority, 'h:queue'; '-' is that of nodes without a task.

-- depth is by how much the numbers of ready nodes change, by lane.
local depth = {}

local function deepen(lane, n) depth[lane] = (depth[lane] or 0) + n end

local function saveDepth()
  for lane, n in pairs(depth) do
    if n ~= 0 then redis.call('HINCRBY', P .. 'wake:' .. string.sub(lane, 3), 'd' .. string.sub(lane, 1, 1), whole(n)) end
  end
end

-- read returns the parts of an element: workflow, prefix, first, last, deaths ('' for none). A single node has no last.
-- It returns nil for what is damaged; a span has at least one node.
local function read(el)
  local wf, span, lost = string.match(el, '^([^/]+)/([^@]+)@?(%d*)$')
  if not wf then return nil end
  local prefix, a, b = string.match(span, '^(.-)(%d+)%-(%d+)$')
  if not prefix then return wf, span, nil, nil, lost end
  a, b = tonumber(a), tonumber(b)
  if a > b then return nil end
  return wf, prefix, a, b, lost
end

-- size returns how many nodes an element has.
local function size(el)
  local a, b = string.match(el, '(%d+)%-(%d+)@?%d*$')
  return a and b - a + 1 or 1
end

-- push puts elements into the ready list of a fairness key, at the head in reverse order.
local function push(lane, key, els, head)
  local list = P .. 'ready:' .. lane .. ':' .. key
  local had = redis.call('LLEN', list) > 0
  bulk(head and 'LPUSH' or 'RPUSH', list, els)
  if not had then redis.call(head and 'LPUSH' or 'RPUSH', P .. 'ring:' .. lane, key) end
  local n = 0
  for i = 1, #els do n = n + size(els[i]) end
  deepen(lane, n)
end

-- enqueue makes the first nodes of a workflow ready. Alone it needs no list: it stands in the ring itself.
local function enqueue(lane, el)
  redis.call('RPUSH', P .. 'ring:' .. lane, el)
  deepen(lane, size(el))
end

-- waiting reports whether a queue has ready nodes.
local function waiting(q) return redis.call('EXISTS', P .. 'ring:n:' .. q, P .. 'ring:h:' .. q) > 0 end
