-- pop takes tasks out of a queue of asynq, as its dequeue script does, several at once. A worker that
-- finds none goes to sleep: the bell has the next push wake it. A task whose hash is gone is dropped.
-- KEYS[1] pending, [2] paused, [3] active, [4] lease, [5] bell
-- ARGV[1] end of the lease (unix s), [2] prefix of task hashes, [3] most tasks, [4] seconds the bell waits
-- returns {task id, message, …}
local ids = {}
if redis.call('EXISTS', KEYS[2]) == 0 then ids = redis.call('LRANGE', KEYS[1], -tonumber(ARGV[3]), -1) end
if #ids == 0 then
  redis.call('SET', KEYS[5], '1', 'EX', ARGV[4])
  return {}
end
local out, leases, active = {}, {}, {}
for i = #ids, 1, -1 do
  local msg = redis.call('HGET', ARGV[2] .. ids[i], 'msg')
  if msg then
    out[#out + 1] = ids[i]
    out[#out + 1] = msg
    active[#active + 1] = ids[i]
    leases[#leases + 1] = ARGV[1]
    leases[#leases + 1] = ids[i]
  end
end
if #active > 0 then
  redis.call('LPUSH', KEYS[3], unpack(active))
  redis.call('ZADD', KEYS[4], unpack(leases))
end
redis.call('LTRIM', KEYS[1], 0, -#ids - 1)
-- pending_since stays: asynq reads it only of what is pending, and writes it whenever that begins.
for i = 1, #active do redis.call('HSET', ARGV[2] .. active[i], 'state', 'active') end
return out
