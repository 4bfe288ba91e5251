-- advance makes nodes terminal and lets their outcomes act on the graph; a repeat changes nothing.
-- KEYS and ARGV as in lib. An item: [1..5], [6] worker that may begin one of what becomes ready, or '',
-- [7] number of nodes it may begin, these, number of ops, then per op: node, outcome, epoch, body,
-- flags, place to give back, number of edges, and per edge: node, kind, need, delay, lim
-- returns per item {moved, status…}, a string if moved is one and the status ok, or {'gone'};
-- moved: what close returns
local f
return each(function(i, p)
  p = p + 5
  local n = int(ARGV[p + 1])
  local a = p + n + 3
  local node, ops = ARGV[a], int(ARGV[a - 1])
  wf = KEYS[2 + i]
  local have = redis.call('HMGET', wf, 'n', 'z', 'vn', 'vz', 'ct', 'cc', 'x', node, 'e' .. node, 'p' .. node)
  if not have[1] then return {'gone'} end
  local rec = have[8]
  if rec and have[1] == '1' and not (have[2] or have[3] or have[5] or have[9] or have[10]) and ops == 1 and ARGV[a + 1] == 'S'
    and ARGV[a + 2] == '' and ARGV[a + 4] == '' and ARGV[a + 5] == '' and ARGV[a + 6] == '0' and string.sub(rec, 1, 1) == 'R' then
    -- The only task of a workflow came to a value the first time. Its input is not deleted but emptied, which
    -- needs no call.
    local attempt, started, owner = string.match(rec, '^R|%d*|(%d*)|%d*|([%d-]*)|(.*)$')
    local created = ARGV[p - 4]
    redis.call('PEXPIRE', wf, ARGV[p - 2]) -- first: a script that has written may write on when memory is full
    redis.call('HSET', wf, node, 'S|' .. whole(attempt + 1) .. '|' .. whole(started - created) .. '|' .. whole(now - created) .. '|' .. owner .. '|' .. ARGV[a + 3],
      'z', '1', 'a' .. node, '')
    redis.call('PUBLISH', ARGV[p - 1], '1')
    over[#over + 1] = ARGV[p - 5] .. '/' .. node
    return '1' .. date
  end
  use(i, p - 5)
  worker = ARGV[p]
  if n > 0 then
    takes = {}
    for k = 1, n do takes[ARGV[p + 1 + k]] = true end
  end
  f = f or flow()
  recs[node] = rec
  local out = {}
  for k = 1, ops do
    local n = int(ARGV[a + 6])
    out[1 + k] = f.op(ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5], a + 7, n, have[7])
    a = a + 7 + n * 5
  end
  out[1] = close(have)
  if ops == 1 and out[2] == 'ok' and type(out[1]) == 'string' then return out[1] end
  return out
end)
