-- submit1 stores a workflow of one node that runs at once, and puts it on the ring of its queue. Its ID is generated. Its entry lists it as live,
-- see waiting.
-- KEYS as in lib
-- ARGV[1] reference, [2] queue, [3] graph, [4] input of the node, [5] unix hour in which it was sent
-- returns 1, or 0 for a repeated call
local P, w = KEYS[1], KEYS[1] .. 'w:' .. ARGV[1]
if redis.call('HSET', w, GRAPH, ARGV[3], TASKS, '1', INPUT .. '0', ARGV[4]) < 3 then return 0 end
redis.call('RPUSH', P .. 'ring:' .. ARGV[2], ARGV[1])
redis.call('ZADD', P .. 'queues', ARGV[5], ARGV[2])
return 1
