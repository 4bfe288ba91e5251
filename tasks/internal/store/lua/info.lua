-- info stores what a worker says of itself in a Redis whose memory is full.
-- KEYS[1] info of the worker
-- ARGV[1] the info, [2] ms after which it expires
-- returns OK
redis.call('PERSIST', KEYS[1]) -- a full Redis refuses a script's first write only, if it needs memory
return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
