-- look finds queues with ready nodes that nobody takes.
-- KEYS as in lib
-- ARGV[1] ms after which a wake-task that was asked for is looked for, then queues
-- returns {wants, {queue, generation of a wake-task that is overdue, …}}
local stale, patience = {}, tonumber(ARGV[1])
for i = 2, #ARGV do
  local q = ARGV[i]
  local k = P .. 'wake:' .. q
  local h = redis.call('HMGET', k, 'p', 'g', 't', 'n')
  if (h[1] or h[4]) and now - tonumber(h[3] or '0') > patience and waiting(q) then
    if h[4] and h[4] ~= '0' then redis.call('HSET', k, 'n', '0') end -- whatever the count says
    if not h[1] then
      want(q)
    elseif math.abs(now - tonumber(h[1])) > patience then
      stale[#stale + 1] = q
      stale[#stale + 1] = h[2] or '0'
    end
  end
end
return {wants, stale}
