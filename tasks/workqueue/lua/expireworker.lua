-- Ends the leases of a worker that has died, as if they had expired, and
-- removes it from the list of pools.
-- KEYS: common.lua. ARGV: worker, attempt limit, note.
-- Returns how many; 0 in a sealed queue, whose leases have ended.
redis.call("ZREM", POOLS, ARGV[1])
if sealed then return 0 end
local moved = expireAll({ [ARGV[1]] = true }, tonumber(ARGV[2]), ARGV[3])
finish(moved)
return moved
