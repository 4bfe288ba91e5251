-- hold lets the agenda rest for nodes that were handed over and have not begun since.
-- KEYS[1] workflow hash, KEYS[2] agenda
-- ARGV[1] workflow, [2] ms until the next look, then per node: node, epoch it was handed over under
-- returns how many still waited
local clock = redis.call('TIME')
local at = clock[1] * 1000 + math.floor(clock[2] / 1000) + tonumber(ARGV[2])
local waits = {}
for i = 3, #ARGV, 2 do
  local rec = redis.call('HGET', KEYS[1], ARGV[i])
  if (rec and string.match(rec, '^Q|(%d+)|') or (not rec and '0')) == ARGV[i + 1] then
    waits[#waits + 1] = at
    waits[#waits + 1] = ARGV[1] .. '/' .. ARGV[i]
  end
end
for i = 1, #waits, 1000 do redis.call('ZADD', KEYS[2], 'XX', unpack(waits, i, math.min(i + 999, #waits))) end
return #waits / 2
