-- advance makes nodes terminal and lets their outcomes act on the graph; a repeat changes nothing.
-- KEYS and ARGV as in lib. An item: [1..5], [6] worker that may begin one of what becomes ready, or '',
-- [7] number of nodes it may begin, these, number of ops, then per op: node, outcome, epoch, body,
-- flags, place to give back, number of edges, and per edge: node, kind, need, delay, lim
-- returns per item {moved, statuses} or {'gone'}; moved: {ready, timed, ended, taken, now}
local f
return each(function(i, p)
  p = use(i, p)
  worker = ARGV[p]
  local n = tonumber(ARGV[p + 1])
  for k = 1, n do takes[ARGV[p + 1 + k]] = true end
  p = p + 2 + n
  local ops, a = tonumber(ARGV[p]), p + 1
  local have = redis.call('HMGET', wf, 'n', 'z', 'vn', 'vz', 'ct', 'cc', 'x', ARGV[a])
  if not have[1] then return {'gone'} end
  local rec = have[8]
  if ops == 1 and rec and ARGV[a + 1] == 'S' and ARGV[a + 2] == '' and ARGV[a + 4] == '' and ARGV[a + 5] == '' and ARGV[a + 6] == '0'
    and string.sub(rec, 1, 1) == 'R' then
    -- The end of most workflows: a node that ran, and nothing comes after it.
    local node = ARGV[a]
    local attempt, started, owner = string.match(rec, '^R|%d*|(%d*)|%d*|([%d-]*)|(.*)$')
    puts[1] = node
    puts[2] = 'S|' .. (attempt + 1) .. '|' .. (started - created) .. '|' .. (now - created) .. '|' .. owner .. '|' .. ARGV[a + 3]
    redis.call('HDEL', wf, 'a' .. node, 'e' .. node, 'p' .. node)
    over[1] = W .. '/' .. node
    count.z, changed, told = 1, true, node == root
    return {close(have), {'ok'}}
  end
  f = f or flow()
  if rec ~= nil then recs[ARGV[a]] = rec end
  local statuses = {}
  for k = 1, ops do
    local n = tonumber(ARGV[a + 6])
    statuses[k] = f.op(ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5], a + 7, n, have[7])
    a = a + 7 + n * 5
  end
  return {close(have), statuses}
end)
