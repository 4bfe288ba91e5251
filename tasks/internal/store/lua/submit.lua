-- submit stores a workflow and releases the nodes that can run.
-- KEYS as in lib
-- ARGV[1..5] five facts of the workflow, as in flow, [6] graph, [7] number of tasks, [8] number of nodes without a
-- task, [9] unix ms from which on it is too late to send it, or '', [10] unique key or '', [11] its ttl ms, [12]
-- fairness key or '', [13] number of parts of the inputs that piece has stored, [14] number of inputs k, [15]
-- number of roots r, [16] 1 if the only root is a span of normal priority that is ready at once, [17] deadline, unix ms, or '', [18] references of the
-- workflows with the unique key that must end before this one begins, separated by spaces, or '', [19] replaceable: another workflow may replace it until it begins; once: a workflow that has succeeded has the unique key, too; or ''; then k times field,
-- input; then r times span, lane, delay, lim
-- returns {'ok', todo or false}; {'dup', reference of the workflow with the id, or of all workflows that have the unique key}; {'late'}; or {'expired'} if the
-- inputs that were stored before have expired
if ARGV[9] ~= '' and now >= tonumber(ARGV[9]) then return {'late'} end
local wf = P .. 'w:' .. ARGV[1]
local other = holder(ARGV[1])
if other then return {'dup', other} end
if ARGV[13] ~= '0' and redis.call('HGET', wf, PARTS) ~= ARGV[13] then return {'expired'} end
if ARGV[10] ~= '' then
  local unique = P .. 'u:' .. ARGV[10]
  local live = {}
  for ref in string.gmatch(redis.call('GET', unique) or '', '%S+') do
    local theirs = P .. 'w:' .. ref
    if redis.call('EXISTS', theirs) == 1 and (redis.call('PTTL', theirs) < 0 or ARGV[19] == 'once' and redis.call('HGET', theirs, ROOT) == SUCCEEDED) then live[#live + 1] = ref end
  end
  for _, ref in ipairs(live) do
    if not string.find(' ' .. ARGV[18] .. ' ', ' ' .. ref .. ' ', 1, true) then return {'dup', table.concat(live, ' ')} end
  end
  redis.call('SET', unique, ARGV[18] == '' and ARGV[1] or ARGV[1] .. ' ' .. ARGV[18], 'PX', ARGV[11])
end
local k, r = tonumber(ARGV[14]), tonumber(ARGV[15])
local first, todo = 20 + 2 * k, nil
local puts = {GRAPH, ARGV[6], TASKS, ARGV[7]}
if ARGV[8] ~= '0' then
  puts[#puts + 1] = STEPS
  puts[#puts + 1] = ARGV[8]
end
if ARGV[17] ~= '' then
  puts[#puts + 1] = DEADLINE
  puts[#puts + 1] = ARGV[17]
end
if ARGV[18] ~= '' then
  for _, v in ipairs({BEFORE, ARGV[18], STOPPED, BY_ORDER}) do puts[#puts + 1] = v end
end
if ARGV[19] == 'replaceable' then
  puts[#puts + 1] = UNBEGUN
  puts[#puts + 1] = '1'
end
if ARGV[12] ~= '' then
  puts[#puts + 1] = FAIRNESS
  puts[#puts + 1] = ARGV[12]
end
for i = 20, first - 1 do puts[#puts + 1] = ARGV[i] end
bulk('HSET', wf, puts) -- the first write: a full Redis refuses it, and nothing was stored
if ARGV[13] ~= '0' then
  redis.call('HDEL', wf, PARTS)
  redis.call('PERSIST', wf)
end
local chosen = chosenKey(ARGV[1])
if chosen then redis.call('SET', chosen, ARGV[1]) end
if ARGV[17] ~= '' then redis.call('ZADD', P .. 'agenda', ARGV[17], ARGV[1] .. '/!deadline') end
if ARGV[18] ~= '' then redis.call('ZADD', P .. 'agenda', whole(now + SOON), ARGV[1] .. '/!order') end
opened(ARGV[1], ARGV[5])
if ARGV[16] == '1' then
  -- They need no list: the ring has the element itself.
  local q = string.sub(ARGV[first + 1], 3)
  redis.call('RPUSH', P .. 'ring:' .. q, ARGV[1] .. '/' .. ARGV[first])
  redis.call('ZADD', P .. 'queues', math.floor(now / 3600000), q)
  deepen(ARGV[first + 1], size(ARGV[first]))
  deepen('k:' .. q, 1)
else
  local f = flow('', 0, {})
  f.use(1, ARGV[12] ~= '' and ARGV[12], ARGV[7], ARGV[8])
  local release = f.rest()
  for i = first, first + 4 * r - 3, 4 do release(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]) end
  todo = f.close()
end
saveDepth()
return {'ok', todo or false}
