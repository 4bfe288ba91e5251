-- putback returns entries that a worker has taken from the ring of a queue.
-- KEYS as in lib
-- ARGV[1] worker, [2] queue, then the entries
-- returns the number of entries that the worker had
local n = 0
for i = #ARGV, 3, -1 do
  if redis.call('LREM', P .. 'taken:' .. ARGV[2] .. ':' .. ARGV[1], 1, ARGV[i]) == 1 then
    redis.call('LPUSH', P .. 'ring:' .. ARGV[2], ARGV[i])
    n = n + 1
  end
end
return n
