-- look lists the queues of a worker as used, and pauses and resumes them as asynq does.
-- KEYS as in lib
-- ARGV of each queue: its name, and 1 if it is paused in asynq, else 0
-- returns 1
local STALE = 5000      -- ms after which a pause ends that asynq does not have: the caller may have looked before the pause began
for i = 1, #ARGV, 2 do
  local k = P .. 'queue:' .. ARGV[i]
  redis.call('ZADD', P .. 'queues', math.floor(now / 3600000), ARGV[i])
  local paused = tonumber(redis.call('HGET', k, 'paused') or '')
  if ARGV[i + 1] == '1' and not paused then
    redis.call('HSET', k, 'paused', whole(now))
  elseif ARGV[i + 1] == '0' and paused and math.abs(now - paused) > STALE then
    redis.call('HDEL', k, 'paused')
  end
end
return 1
