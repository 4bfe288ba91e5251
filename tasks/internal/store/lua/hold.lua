-- hold lets the agenda rest for nodes that were handed over and have not begun since.
-- KEYS[1] workflow hash, KEYS[2] agenda
-- ARGV[1] workflow, [2] time of the next look, then per node: node, epoch it was handed over under
-- returns how many still waited
local n = 0
for i = 3, #ARGV, 2 do
  local rec = redis.call('HGET', KEYS[1], ARGV[i])
  if (rec and string.match(rec, '^Q|(%d+)|') or (not rec and '0')) == ARGV[i + 1] then
    redis.call('ZADD', KEYS[2], 'XX', ARGV[2], ARGV[1] .. '/' .. ARGV[i])
    n = n + 1
  end
end
return n
