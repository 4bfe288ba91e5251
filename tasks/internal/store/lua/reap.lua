-- reap ends leases of a worker and makes their nodes ready again.
-- KEYS as in lib
-- ARGV[1] worker, [2] 1 if it has died, which is counted for its nodes, else 0, [3] its queues whose taken entries go back to their
-- rings, separated by spaces, then field and value of each lease; none means all
-- returns the number of nodes and entries put back
local lease, list, fields = P .. 'lease:' .. ARGV[1], {}, {}
local dead = ARGV[2] == '1' and ARGV[1] or nil
if #ARGV > 3 then
  for i = 4, #ARGV, 2 do
    if redis.call('HGET', lease, ARGV[i]) == ARGV[i + 1] then
      fields[#fields + 1] = ARGV[i]
      list[#list + 1] = ARGV[i]
      list[#list + 1] = ARGV[i + 1]
    end
  end
  bulk('HDEL', lease, fields)
else
  local all, values = redis.call('HGETALL', lease), {}
  for i = 1, #all, 2 do fields[#fields + 1], values[all[i]] = all[i], all[i + 1] end
  table.sort(fields, function(a, b) return values[a] < values[b] or values[a] == values[b] and (#a < #b or #a == #b and a < b) end)
  for i, field in ipairs(fields) do list[2 * i - 1], list[2 * i] = field, values[field] end
  redis.call('DEL', lease)
end
local n = giveBack(list, dead)
for q in string.gmatch(ARGV[3], '%S+') do
  local taker = q .. ':' .. ARGV[1]
  local entries = redis.call('LRANGE', P .. 'taken:' .. taker, 0, -1)
  for i = #entries, 1, -1 do
    local wf, deaths = string.match(entries[i], '^([^@/=+]+)@?(%d*)$')
    local have = wf and dead and redis.call('HMGET', P .. 'w:' .. wf, TASKS, '0')
    if have and have[1] and not have[2] then
      deaths = (tonumber(deaths) or 0) + 1
      remember(P .. 'w:' .. wf, '0', '|' .. whole(now) .. '|' .. whole(now) .. '|lost|' .. ARGV[1] .. '|["lost","the worker died"]')
      entries[i] = wf .. '@' .. whole(deaths)
    end
    redis.call('LPUSH', P .. 'ring:' .. q, entries[i])
  end
  redis.call('DEL', P .. 'taken:' .. taker)
  local joined = redis.call('ZSCORE', P .. 'takers', taker)
  if not dead or joined and now - tonumber(joined) > 60000 then -- takerTTL: until then it may take another entry
    redis.call('ZREM', P .. 'takers', taker)
  end
  n = n + #entries
end
saveDepth()
return n
