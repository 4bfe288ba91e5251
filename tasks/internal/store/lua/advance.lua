-- advance makes nodes terminal and lets their outcomes act on the graph; a repeat changes nothing.
-- KEYS[1..3] as in lib
-- ARGV[1..5] as in lib, [6] number of ops, then per op: node, outcome, epoch, body, flags, place to
-- give back, number of edges, and per edge: node, kind, need, delay, lim
-- returns {statuses, ready, timed, ended} or {'gone'}
if redis.call('EXISTS', wf) == 0 then return {'gone'} end
local revoked = redis.call('HEXISTS', wf, 'x') == 1
local statuses = {}
local a = 7
for i = 1, tonumber(ARGV[6]) do
  local n = tonumber(ARGV[a + 6])
  statuses[i] = op(ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5], a + 7, n, revoked)
  a = a + 7 + n * 5
end
return {statuses, ready, string.format('%d', timed), close()}
