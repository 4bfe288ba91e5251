-- submit stores a workflow and releases what can run at once.
-- KEYS as in lib
-- ARGV[1..5] five facts of the workflow, as in flow, [6] graph, [7] number of tasks, [8] of nodes without a task, [9] unix
-- ms from which on it is late or '', [10] unique key or '', [11] its ttl ms, [12] fairness key or '', [13] token
-- of the sender if inputs were stored before, or '', [14] number of inputs k, [15] number of roots r; then k times node,
-- record; then r times span, lane, delay, lim
-- returns {'ok', wants, todo or false}, {'dup', id} or {'late'}
if ARGV[9] ~= '' and now >= tonumber(ARGV[9]) then return {'late'} end
wf = P .. 'w:' .. ARGV[1]
if redis.call('EXISTS', wf) == 1 and not (ARGV[13] ~= '' and redis.call('HGET', wf, 'u') == ARGV[13]) then return {'dup', ARGV[1]} end
if ARGV[10] ~= '' then
  local unique = P .. 'u:' .. ARGV[10]
  local other = redis.call('GET', unique)
  if other then
    local theirs = P .. 'w:' .. other
    if redis.call('EXISTS', theirs) == 1 and redis.call('PTTL', theirs) < 0 then return {'dup', other} end
  end
  redis.call('SET', unique, ARGV[1], 'PX', ARGV[11])
end
W, created, root, retention, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
key = ARGV[12] ~= '' and ARGV[12] or W
have = {ARGV[7], '0', ARGV[8], '0', '0', '0'}
puts = {'g', ARGV[6], 'n', ARGV[7]}
if ARGV[8] ~= '0' then
  puts[#puts + 1] = 'vn'
  puts[#puts + 1] = ARGV[8]
end
if ARGV[12] ~= '' then
  puts[#puts + 1] = 'f'
  puts[#puts + 1] = ARGV[12]
end
local k, r = tonumber(ARGV[14]), tonumber(ARGV[15])
for i = 16, 14 + 2 * k, 2 do put(ARGV[i], ARGV[i + 1]) end
-- The first write: a full Redis refuses it, and nothing was stored.
bulk('HSET', wf, puts)
puts = {}
if ARGV[13] ~= '' then
  redis.call('HDEL', wf, 'u')
  redis.call('PERSIST', wf)
end
for i = 16 + 2 * k, 12 + 2 * k + 4 * r, 4 do releaseSpan(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]) end
opened(W, name)
local todo = close('')
saveDepth()
return {'ok', wants, todo or false}
