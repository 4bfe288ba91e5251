-- project writes a public progress key: numbers never decrease, and status words only advance, from DISPATCHED (sent)
-- through COLLECTING (a worker determines the work) to a final one.
-- KEYS[1] key
-- ARGV[1] how (max, once, word, set), ARGV[2] value, ARGV[3] ttl seconds
-- returns the resulting value
local have = redis.call('GET', KEYS[1])
local v = ARGV[2]
if have then
  if ARGV[1] == 'once' then
    v = have
  elseif ARGV[1] == 'max' then
    local a, b = tonumber(have), tonumber(v)
    if a and b and a > b then v = have end
  elseif ARGV[1] == 'word' then
    local rank = {DISPATCHED = 1, COLLECTING = 2, PROCESSING = 3, AGGREGATING = 4, COMPLETE = 5, ['FAILED'] = 5}
    if (rank[have] or 0) > (rank[v] or 0) or (rank[have] == 5) then v = have end
  end
end
redis.call('SET', KEYS[1], v, 'EX', ARGV[3])
return v
