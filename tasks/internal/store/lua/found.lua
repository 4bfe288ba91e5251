-- found makes an empty Redis a store, even if its memory is full.
-- KEYS[1] key with the schema of the store
-- ARGV[1] value to set if there is none
-- returns the value of the key
redis.call('PERSIST', KEYS[1]) -- a full Redis refuses a script's first write only, if it needs memory
redis.call('SETNX', KEYS[1], ARGV[1])
return redis.call('GET', KEYS[1])
