-- look finds queues with ready nodes that no worker takes. It adds the queues to asynq's list of queues, from which
-- asynq removes a queue that an operator deletes.
-- KEYS as in lib
-- ARGV[1] ms: a queue from which nothing was taken for longer has no worker, and a wake-task that has
-- been pending for longer is overdue, then queues
-- returns {wants, {queue, generation of an overdue wake-task, …}, {pool of one of the queues with ready nodes, 1 if nothing was taken from it for so long, else
-- 0, …}}
local UNUSED = 60000 -- ms after which a pool without ready nodes is deleted
local stale, pools, patience = {}, {}, tonumber(ARGV[1])
if LISTS and #ARGV > 1 then redis.call('SADD', 'asynq:queues', unpack(ARGV, 2)) end
local queues, served = {unpack(ARGV, 2)}, {}
for _, q in ipairs(queues) do served[q] = true end
for _, pool in ipairs(redis.call('SMEMBERS', P .. 'pools')) do
  local h = redis.call('HMGET', P .. 'wake:' .. pool, 'taken', 'pending')
  local used = math.abs(now - math.max(tonumber(h[1] or '0'), tonumber(h[2] or '') or 0))
  if not waiting(pool) then
    if used > UNUSED then
      redis.call('SREM', P .. 'pools', pool)
      redis.call('DEL', P .. 'wake:' .. pool, P .. 'wakeup:' .. pool)
    end
  elseif served[baseOf(pool)] then
    queues[#queues + 1] = pool
    pools[#pools + 1] = pool
    pools[#pools + 1] = used > patience and '1' or '0'
  end
end
for _, q in ipairs(queues) do
  local k = P .. 'wake:' .. q
  local h = waiting(q) and redis.call('HMGET', k, 'pending', 'generation', 'taken')
  if h and math.abs(now - tonumber(h[3] or '0')) > patience then
    if not h[1] or h[1] == '' then
      want(q)
    elseif math.abs(now - tonumber(h[1])) > patience and not (LISTS and redis.call('EXISTS', P .. 'wakeup:' .. q) == 1) then
      stale[#stale + 1] = q
      stale[#stale + 1] = h[2] or '0'
    end
  end
end
return {wants, stale, pools}
