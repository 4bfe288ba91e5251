-- note sets when an entry of the agenda is due.
-- KEYS as in lib
-- ARGV[1] entry, [2] ms from now, [3] 1 to change only an entry that exists
-- returns nothing
if ARGV[3] == '1' then
  redis.call('ZADD', P .. 'agenda', 'XX', whole(now + ARGV[2]), ARGV[1])
else
  redis.call('ZADD', P .. 'agenda', whole(now + ARGV[2]), ARGV[1])
end
