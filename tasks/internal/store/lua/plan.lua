-- plan puts a graph in the place of a running node.
-- KEYS[1..3] as in lib
-- ARGV[1..5] as in lib, [6] planned node, [7] epoch, [8] graph, [9] tasks, [10] virtual nodes,
-- [11] number of literal inputs k, [12] number of roots r,
-- then k times node, input; then r times node, delay, lim
-- returns {'ok', ready, timed, ended} or {'stale'}
local node = ARGV[6]
local rec = redis.call('HGET', wf, node)
if not rec or redis.call('HEXISTS', wf, 'x') == 1 then return {'stale'} end
local st, epoch, attempt, lost, at, owner = string.match(rec, '^(%a)|(%d*)|(%d*)|(%d*)|([%d-]*)|(.*)$')
if st ~= 'R' or epoch ~= ARGV[7] then return {'stale'} end
redis.call('HSET', wf, node, 'P|' .. epoch .. '|' .. (attempt + 1) .. '|' .. lost .. '|' .. at .. '|' .. owner, 'g' .. node, ARGV[8])
redis.call('HDEL', wf, 'a' .. node, 'e' .. node, 'p' .. node)
redis.call('HDEL', running, W .. '/' .. node)
redis.call('HINCRBY', wf, 'n', ARGV[9])
if ARGV[10] ~= '0' then redis.call('HINCRBY', wf, 'vn', ARGV[10]) end
local a = 13
for i = 1, tonumber(ARGV[11]) do
  redis.call('HSET', wf, 'a' .. ARGV[a], ARGV[a + 1])
  a = a + 2
end
for i = 1, tonumber(ARGV[12]) do
  release(ARGV[a], ARGV[a + 1], ARGV[a + 2])
  a = a + 3
end
return {'ok', ready, string.format('%d', timed), close()}
