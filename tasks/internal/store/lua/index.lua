-- The index of a shard: the live workflows, the latest finished ones, and counts of the outcomes of nodes, by minute
-- and hour. Appended to lib, before the scripts that change workflows.
-- KEYS and ARGV of the calling script; P, now and whole are of lib
-- returns nothing: it defines functions
local FIELDS = 20000 -- fields of a hash of counts, about 2 MB; beyond that, new tasks are counted together
local FAILS = 100 -- failed nodes of a task
local DAY = 24 * 3600
local OTHER = '(other)'

-- In an entry the name comes last: unlike an id it may have spaces.

-- opened lists a workflow as live. name must be the same when it ends.
local function opened(id, name)
  redis.call('ZADD', P .. 'live', now, id .. ' ' .. name)
end

-- openedSingle lists a workflow of one node as live when its entry leaves ring and taken list, which list it before. Its name is in its graph.
local function openedSingle(id)
  local have = redis.call('HMGET', P .. 'w:' .. id, GRAPH, '0', STOPPED)
  if have[1] and not have[2] and have[3] ~= BY_REVOKE then
    local sent = 0 -- the time in the id, as SentAt reads it
    for i = 1, 10 do
      local c = string.byte(id, i) or 48
      sent = sent * 32 + (c < 58 and c - 48 or c - 87)
    end
    redis.call('ZADD', P .. 'live', whole(math.floor(sent / 4)), id .. ' ')
  end
end

-- ended lists a live workflow as ended: state is SUCCEEDED, FAILED or REVOKED, created is unix ms.
local function ended(id, name, state, created)
  redis.call('ZREM', P .. 'live', id .. ' ' .. name, id .. ' ')
  redis.call('ZADD', P .. 'done:' .. state, now, id .. ' ' .. created .. ' ' .. name)
end

-- reopened lists an ended workflow as live again, since it was sent.
local function reopened(id, name, created)
  for _, state in ipairs({SUCCEEDED, FAILED, REVOKED}) do redis.call('ZREM', P .. 'done:' .. state, id .. ' ' .. created .. ' ' .. name) end
  redis.call('ZADD', P .. 'live', created, id .. ' ' .. name)
end

local counts -- "<kind> <queue> <task>" to a number, or nil

-- count adds to the nodes of a task that ended in a state, or failed and are retried (again), to the milliseconds that
-- its handlers ran (ms), or to the handlers that ran for a time, by its bucket (a number). The name of a queue has no space.
local function count(queue, task, kind, n)
  local name = kind .. ' ' .. queue .. ' ' .. task
  counts = counts or {}
  counts[name] = (counts[name] or 0) + n
end

-- failing lists a node of a task that has failed: of each task the last FAILS.
local function failing(task, element)
  local key = P .. 'fails:' .. task
  local n = redis.call('LPUSH', key, whole(now) .. ' ' .. element)
  if (tonumber(n) or 0) > FAILS then redis.call('LTRIM', key, 0, FAILS - 1) end
  redis.call('EXPIRE', key, DAY)
end

-- counted writes the collected counts; the script calls it once, at its end.
local function counted()
  if not counts then return end

  -- bump adds to a field of a hash of counts, and to the one of other tasks if it would be one too many. Only a field whose value is n
  -- is new, or may be.
  local function bump(key, slot, name, n, keep)
    local field = slot .. name
    if redis.call('HINCRBY', key, field, whole(n)) ~= n then return end
    if redis.call('HLEN', key) > FIELDS then
      redis.call('HDEL', key, field)
      redis.call('HINCRBY', key, slot .. (string.match(name, '^%S+ %S+ ') or '') .. OTHER, whole(n))
    end
    redis.call('EXPIRE', key, keep)
  end

  local minute = math.floor(now / 60000)
  local hour = math.floor(minute / 60)
  for name, n in pairs(counts) do
    n = math.floor(n + 0.5)
    if string.find(name, '^%d') then
      bump(P .. 'cd:' .. whole(hour), '', name, n, 26 * 3600)
    elseif n > 0 then
      bump(P .. 'cm:' .. whole(hour), whole(minute % 60) .. ' ', name, n, 26 * 3600)
      bump(P .. 'ch:' .. whole(math.floor(hour / 24)), whole(hour % 24) .. ' ', name, n, 31 * DAY)
    end
  end
end
