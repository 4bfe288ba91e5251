-- renew renews places.
-- KEYS as in lib
-- ARGV[1] ms for which the places stay, then of each place the name of its limit, and the place
-- returns 1
for i = 2, #ARGV, 2 do
  local key = P .. 'limit:places:' .. ARGV[i]
  redis.call('ZADD', key, 'XX', whole(now + ARGV[1]), ARGV[i + 1])
  redis.call('PEXPIRE', key, 6 * ARGV[1])
end
return 1
