-- enter marks a batch of one suspected node: its handler is about to be called.
-- KEYS as in lib
-- ARGV[1] worker, [2] batch
-- returns 1, or 0 if the worker does not have the batch any more
local lease = P .. 'lease:' .. ARGV[1]
local value = redis.call('HGET', lease, ARGV[2])
if not value then return 0 end
local taken, rest = string.match(value, '^(%d+)!?( .*)$')
redis.call('HSET', lease, ARGV[2], taken .. '!' .. rest)
return 1
