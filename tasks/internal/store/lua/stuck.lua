-- stuck adds events of stuck workflows to the index, each once.
-- KEYS as in lib
-- ARGV entries of the index
-- returns how many are new
local new = 0
for _, entry in ipairs(ARGV) do new = new + redis.call('ZADD', P .. 'done:' .. STUCK, 'NX', now, entry) end
return new
