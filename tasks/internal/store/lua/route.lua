-- route stores the pool of a task.
-- KEYS[1] routes
-- ARGV[1] '<queue> <task>', [2] pool, [3] ms after which all routes are deleted, if there were none
-- returns 1
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if redis.call('PTTL', KEYS[1]) < 0 then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return 1
