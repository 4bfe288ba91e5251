-- progress records how far a running node is; a node that does not run keeps what it has.
-- KEYS[1] workflow hash
-- ARGV[1] node, ARGV[2] done/total
-- returns 1 or 0
local rec = redis.call('HGET', KEYS[1], ARGV[1])
if not rec or string.sub(rec, 1, 1) ~= 'R' then return 0 end
redis.call('HSET', KEYS[1], 'p' .. ARGV[1], ARGV[2])
return 1
