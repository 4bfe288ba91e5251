-- push puts tasks into a queue of asynq, as its enqueue script does, and wakes workers that sleep.
-- KEYS[1] pending, KEYS[2] bell, KEYS[3..] task hashes, one for each item
-- ARGV[1] channel, [2] message that wakes, [3] unix ns, [4] number of items, then per item: number of its
-- arguments, task id, message, 1 if it goes to the head of the queue
-- returns per item 1, or 0 if asynq has a task with this id
local out, tail, head, p = {}, {}, {}, 5
for i = 1, tonumber(ARGV[4]) do
  local key = KEYS[2 + i]
  if redis.call('EXISTS', key) == 1 then
    out[i] = 0
  else
    redis.call('HSET', key, 'msg', ARGV[p + 2], 'state', 'pending', 'pending_since', ARGV[3])
    local list = ARGV[p + 3] == '1' and head or tail
    list[#list + 1] = ARGV[p + 1]
    out[i] = 1
  end
  p = p + 1 + tonumber(ARGV[p])
end
for i = 1, #tail, 1000 do redis.call('LPUSH', KEYS[1], unpack(tail, i, math.min(i + 999, #tail))) end
for i = 1, #head, 1000 do redis.call('RPUSH', KEYS[1], unpack(head, i, math.min(i + 999, #head))) end
if #tail + #head > 0 and redis.call('DEL', KEYS[2]) == 1 then redis.call('PUBLISH', ARGV[1], ARGV[2]) end
return out
