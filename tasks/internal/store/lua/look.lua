-- look lists the queues of a worker as used, pauses and resumes them as asynq does, and cuts the index of ended workflows.
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

local KEEP = {[SUCCEEDED] = 10000, [FAILED] = 100000, [REVOKED] = 10000, [STUCK] = 10000} -- about 10 MB
local UNREAD = 1000000 -- kept of each state for readers
local SILENT = 86400000 -- ms after the last call of a reader for which it keeps events
local readers
for state, most in pairs(KEEP) do
  local done = P .. 'done:' .. state
  local size = redis.call('ZCARD', done)
  if size > most then
    readers = readers or redis.call('HGETALL', P .. 'readers')
    local cut, unread = size - most, {}
    for i = 1, #readers, 2 do
      local at, seen = string.match(readers[i + 1], '^(%d+)%S* (%d+)$')
      if at then
        unread[readers[i]] = redis.call('ZCOUNT', done, at, '+inf')
        if now - seen < SILENT then cut = math.min(cut, size - unread[readers[i]]) end
      end
    end
    cut = math.max(cut, size - math.max(most, UNREAD))
    for name, n in pairs(unread) do
      if n > size - cut then redis.call('HINCRBY', P .. 'readers', '!' .. name, n - (size - cut)) end
    end
    if cut > 0 then
      redis.call('HSET', P .. 'cut', state, redis.call('ZRANGE', done, cut - 1, cut - 1, 'WITHSCORES')[2])
      redis.call('ZREMRANGEBYRANK', done, 0, cut - 1)
    end
  end
end
return 1
