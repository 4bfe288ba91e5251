-- adopt gives a worker a lease in place of an entry that it has taken.
-- KEYS as in lib
-- ARGV[1] worker, [2] queue, [3] entry, [4] field and [5] value of the lease
-- returns 1, or 0 if the worker has lost the entry
if redis.call('LREM', P .. 'taken:' .. ARGV[2] .. ':' .. ARGV[1], 1, ARGV[3]) == 0 then return 0 end
openedSingle(string.match(ARGV[4], '^[^/]+'))
redis.call('HSET', P .. 'lease:' .. ARGV[1], ARGV[4], ARGV[5])
redis.call('ZADD', P .. 'takers', 'NX', whole(now), ARGV[2] .. ':' .. ARGV[1])
return 1
