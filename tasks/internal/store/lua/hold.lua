-- hold stops workers from taking nodes from a queue, or lets them take nodes again.
-- KEYS as in lib
-- ARGV[1] queue, [2] 1 to pause it, 0 to resume it
-- returns 1
local k = P .. 'wake:' .. ARGV[1]
if ARGV[2] == '1' then
  redis.call('HSETNX', k, 'paused', whole(now))
else
  redis.call('HDEL', k, 'paused')
  if waiting(ARGV[1]) then wantAgain(ARGV[1]) end
end
return 1
