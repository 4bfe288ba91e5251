-- found makes an empty Redis a store, also one whose memory is full.
-- KEYS[1] what a store says of itself
-- ARGV[1] what it is to say
-- returns what it says
redis.call('PERSIST', KEYS[1]) -- a full Redis refuses a script's first write only, if it needs memory
redis.call('SETNX', KEYS[1], ARGV[1])
return redis.call('GET', KEYS[1])
