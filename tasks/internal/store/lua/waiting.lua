-- waiting finds the workflows of one node that are on rings, or that workers have taken from them. They are in no other list of live workflows.
-- KEYS as in lib
-- ARGV[1] text after which no entries of rings are wanted, or '' if only their number is
-- returns {number, the entries that workers have taken, then of each ring with some: queue, number of unwanted entries at its tail}
local SINGLE = '^' .. string.rep('[0-9a-v]', 24) .. '~@?%d*$' -- a generated reference; others may have written other entries
local out, n, taken = {0, {}}, 0, {}
for _, taker in ipairs(redis.call('ZRANGE', P .. 'takers', 0, -1)) do
  for _, e in ipairs(redis.call('LRANGE', P .. 'taken:' .. taker, 0, -1)) do
    if string.find(e, SINGLE) then taken[#taken + 1] = e end
  end
end
for _, q in ipairs(redis.call('ZRANGE', P .. 'queues', 0, -1)) do
  local ring = P .. 'ring:' .. q
  local len = redis.call('LLEN', ring)
  local singles = len - (redis.call('HGET', P .. 'queue:' .. q, 'ready:k') or 0)
  if singles > 0 then
    n = n + singles
    local from, to = 0, ARGV[1] ~= '' and len or 0 -- references have the order of time, as the ring has, except for some that came late
    while from < to do
      local mid = math.floor((from + to) / 2)
      local e = redis.call('LINDEX', ring, -1 - mid)
      if string.find(e, SINGLE) and e > ARGV[1] then from = mid + 1 else to = mid end
    end
    out[#out + 1], out[#out + 2] = q, from
  end
end
out[1], out[2] = n + #taken, taken
return out
