-- resign gives up the entries that a scheduler leads.
-- KEYS[1..] entries
-- ARGV[1] scheduler
-- returns how many it led
local n = 0
for _, e in ipairs(KEYS) do
  if redis.call('HGET', e, 'holder') == ARGV[1] then
    redis.call('HSET', e, 'until', '0')
    n = n + 1
  end
end
return n
