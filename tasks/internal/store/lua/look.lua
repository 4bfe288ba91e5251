-- look finds queues with ready nodes that no worker takes, and pushes their wake-ups, again if one may have been lost. It
-- pauses and resumes queues as asynq does.
-- KEYS as in lib
-- ARGV[1] ms: a queue from which nothing was taken for longer has no worker, and a wake-up that was pushed longer ago and is not in
-- the list was lost, then for each queue: its name, and 1 if it is paused in asynq, else 0
-- returns 1
local STALE = 5000      -- ms after which a pause ends that asynq does not have: the caller may have looked before the pause began
local patience = tonumber(ARGV[1])
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
  if not paused and waiting(q) and math.abs(now - tonumber(h[2] or '0')) > patience then
    if not h[1] or h[1] == '' then
      want(q)
    elseif math.abs(now - tonumber(h[1])) > patience and redis.call('EXISTS', P .. 'wakeup:' .. q) == 0 then
      wantAgain(q)
    end
  end
end
return 1
