-- enter marks a node that a worker has begun as one whose handler it is about to call.
-- KEYS[1] workflow hash, KEYS[2] running
-- ARGV[1] workflow, [2] node, [3] epoch, [4] worker
-- returns 1, or 0 when someone else has the node
local rec = redis.call('HGET', KEYS[1], ARGV[2])
if not rec then return 0 end
local st, epoch, owner = string.match(rec, '^(%a)|(%d*)|%d*|%d*|[%d-]*|(.*)$')
if st ~= 'R' or epoch ~= ARGV[3] or owner ~= ARGV[4] then return 0 end
redis.call('HSET', KEYS[2], ARGV[1] .. '/' .. ARGV[2], owner .. '!')
return 1
