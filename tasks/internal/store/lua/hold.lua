-- hold stops workers from taking nodes from a queue, or lets them take nodes again.
-- KEYS as in lib
-- ARGV[1] queue, [2] 1 to pause it, 0 to resume it
-- returns 1
if ARGV[2] == '1' then
  redis.call('HSETNX', P .. 'queue:' .. ARGV[1], 'paused', whole(now))
else
  redis.call('HDEL', P .. 'queue:' .. ARGV[1], 'paused')
end
return 1
