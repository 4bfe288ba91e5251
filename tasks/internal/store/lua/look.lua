-- look finds queues with ready nodes that no worker takes. It adds the queues to asynq's list of queues, from which
-- asynq removes a queue that an operator deletes.
-- KEYS as in lib
-- ARGV[1] ms: a queue from which nothing was taken for longer has no worker, and a wake-task that has
-- been pending for longer is overdue, then queues
-- returns {wants, {queue, generation of an overdue wake-task, …}}
local stale, patience = {}, tonumber(ARGV[1])
if LISTS and #ARGV > 1 then redis.call('SADD', 'asynq:queues', unpack(ARGV, 2)) end
for i = 2, #ARGV do
  local q = ARGV[i]
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
return {wants, stale}
