-- scheduled reads nodes that wait for their time.
-- KEYS as in lib
-- ARGV[1] rank of the first entry of the agenda, [2] most entries to look at, [3] most nodes
-- returns {number of entries looked at, then of each node or span of nodes: the entry, DELAYED or RETRYING, when it is due (unix ms), its
-- lane}
local out = {0}
for _, line in ipairs(redis.call('ZRANGE', P .. 'agenda', ARGV[1], ARGV[1] + ARGV[2] - 1)) do
  if #out > 4 * ARGV[3] then break end
  out[1] = out[1] + 1
  local id, node = string.match(line, '^([^/]+)/([^!].*)$')
  local span = id and string.find(node, '-', 1, true)
  local rec = id and redis.call('HGET', P .. 'w:' .. id, span and SPANS or node)
  if rec and span then
    for s, at, lane in string.gmatch(rec, '(%S+) (%d+) %d* ([^\n]*)\n') do
      if s == node then
        for _, v in ipairs({line, DELAYED, at, lane}) do out[#out + 1] = v end
      end
    end
  elseif rec then
    local state, at, lane = string.match(rec, '^([{DELAYED}{RETRYING}])|%d*|%d*|(%d*)|%d*|([^|]*)$')
    if state then
      for _, v in ipairs({line, state, at, lane}) do out[#out + 1] = v end
    end
  end
end
return out
