-- hold stops workers from taking nodes from a queue and its pools, or lets them take nodes again.
-- KEYS as in lib
-- ARGV[1] queue, [2] 1 to pause it, 0 to resume it
-- returns 1
local k = P .. 'wake:' .. ARGV[1]
if ARGV[2] == '1' then
  redis.call('HSETNX', k, 'paused', whole(now))
else
  redis.call('HDEL', k, 'paused')
  for _, lane in ipairs(withPools({'n:' .. ARGV[1]})) do
    local q = string.sub(lane, 3)
    if waiting(q) then wantAgain(q) end
  end
end
return 1
