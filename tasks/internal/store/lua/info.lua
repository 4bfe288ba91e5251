-- info stores what a worker says of itself.
-- KEYS[1] info of the worker
-- ARGV[1] the info, [2] ms after which it expires
-- returns OK
redis.call('PERSIST', KEYS[1]) -- a full Redis refuses a script whose first write may need memory
return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
