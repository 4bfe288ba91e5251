-- plan puts a graph in the place of a running node.
-- KEYS and ARGV as in lib. An item: [1..5], [6] planned node, [7] epoch, [8] graph, [9] tasks,
-- [10] virtual nodes, [11] number of literal inputs k, [12] number of roots r,
-- then k times node, input; then r times node, delay, lim
-- returns per item {moved} or {'stale'}
local f = flow()
return each(function(i, p)
  p = use(i, p)
  local node = ARGV[p]
  local have = redis.call('HMGET', wf, 'n', 'z', 'vn', 'vz', 'ct', 'cc', 'x')
  local rec = f.record(node)
  if not rec or have[7] then return {'stale'} end
  local st, epoch, attempt, lost, at, owner = string.match(rec, '^(%a)|(%d*)|(%d*)|(%d*)|([%d-]*)|(.*)$')
  if st ~= 'R' or epoch ~= ARGV[p + 1] then return {'stale'} end
  f.put(node, 'P|' .. epoch .. '|' .. (attempt + 1) .. '|' .. lost .. '|' .. at .. '|' .. owner)
  f.put('g' .. node, ARGV[p + 2])
  redis.call('HDEL', wf, 'a' .. node, 'e' .. node, 'p' .. node)
  over[#over + 1] = W .. '/' .. node
  f.add('n', tonumber(ARGV[p + 3]))
  if ARGV[p + 4] ~= '0' then f.add('vn', tonumber(ARGV[p + 4])) end
  local k, r = tonumber(ARGV[p + 5]), tonumber(ARGV[p + 6])
  local a = p + 7
  for j = a, a + 2 * k - 2, 2 do
    puts[#puts + 1] = 'a' .. ARGV[j]
    puts[#puts + 1] = ARGV[j + 1]
  end
  a = a + 2 * k
  for j = a, a + 3 * r - 3, 3 do f.release(ARGV[j], ARGV[j + 1], ARGV[j + 2]) end
  return {close(have)}
end)
