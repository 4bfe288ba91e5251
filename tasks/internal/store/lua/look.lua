-- look finds queues and pools with ready nodes that no worker takes, and pushes their wake-ups, again if one may have been lost. It
-- pauses and resumes queues as asynq does, and deletes unused pools.
-- KEYS as in lib
-- ARGV[1] ms: a queue from which nothing was taken for longer has no worker, and a wake-up that was pushed longer ago and is not in
-- the list was lost, then for each queue: its name, and 1 if it is paused in asynq, else 0
-- returns {pool of one of the queues with ready nodes, 1 if nothing was taken from it for so long, else 0, …}
local STALE = 5000      -- ms after which a pause ends that asynq does not have: the caller may have looked before the pause began
local UNUSED = 60000    -- ms after which a pool without ready nodes is deleted
local pools, served, patience = {}, {}, tonumber(ARGV[1])

-- find pushes a wake-up for a queue or pool if its ready nodes wait. h has the pending wake-up and the last take.
local function find(q, h)
  if not waiting(q) or math.abs(now - tonumber(h[2] or '0')) <= patience then return end
  if not h[1] or h[1] == '' then
    want(q)
  elseif math.abs(now - tonumber(h[1])) > patience and redis.call('EXISTS', P .. 'wakeup:' .. q) == 0 then
    wantAgain(q)
  end
end

for i = 2, #ARGV, 2 do
  local q, k = ARGV[i], P .. 'wake:' .. ARGV[i]
  local h = redis.call('HMGET', k, 'pending', 'taken', 'paused')
  local paused = tonumber(h[3] or '')
  if ARGV[i + 1] == '1' and not paused then
    redis.call('HSET', k, 'paused', whole(now))
    paused = now
  elseif ARGV[i + 1] == '0' and paused and math.abs(now - paused) > STALE then
    redis.call('HDEL', k, 'paused')
    paused = nil
  end
  if not paused then
    served[q] = true
    find(q, h)
  end
end
for _, pool in ipairs(redis.call('SMEMBERS', P .. 'pools')) do
  local h = redis.call('HMGET', P .. 'wake:' .. pool, 'pending', 'taken')
  local used = math.abs(now - math.max(tonumber(h[1] or '') or 0, tonumber(h[2] or '0')))
  if not waiting(pool) then
    if used > UNUSED then
      redis.call('SREM', P .. 'pools', pool)
      redis.call('DEL', P .. 'wake:' .. pool, P .. 'wakeup:' .. pool)
    end
  elseif served[baseOf(pool)] then
    find(pool, h)
    pools[#pools + 1] = pool
    pools[#pools + 1] = used > patience and '1' or '0'
  end
end
return pools
