-- advance makes nodes terminal and lets their outcomes act on the graph; a repeat changes nothing.
-- KEYS and ARGV as in lib. An item: [1..5], [6] worker that may begin one of what becomes ready, or '',
-- [7] number of nodes it may begin, these, number of ops, then per op: node, outcome, epoch, body,
-- flags, place to give back, number of edges, and per edge: node, kind, need, delay, lim
-- returns per item {moved, statuses} or {'gone'}; moved: {ready, timed, ended, taken, now}
return each(function(i, p)
  p = use(i, p)
  local have = counts()
  if not have[1] then return {'gone'} end
  local statuses = {}
  worker = ARGV[p]
  local n = tonumber(ARGV[p + 1])
  for k = 1, n do takes[ARGV[p + 1 + k]] = true end
  p = p + 2 + n
  local a = p + 1
  for k = 1, tonumber(ARGV[p]) do
    local n = tonumber(ARGV[a + 6])
    statuses[k] = op(ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5], a + 7, n, have[7])
    a = a + 7 + n * 5
  end
  return {close(have), statuses}
end)
