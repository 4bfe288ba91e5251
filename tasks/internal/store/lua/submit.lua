-- submit stores a workflow and releases what can run at once.
-- KEYS[1..3] as in lib, KEYS[4] unique key (only with ARGV[10])
-- ARGV[1..5] as in lib, [6] graph, [7] tasks, [8] virtual nodes, [9] unix ms from which on it is late, or '',
-- [10] unique ttl ms or '', [11] number of literal inputs k, [12] number of roots r,
-- then k times node, input; then r times node, delay, lim
-- returns {'ok', ready, timed, ended}, {'dup', id} or {'late'}
if ARGV[9] ~= '' and now >= tonumber(ARGV[9]) then return {'late'} end
if redis.call('EXISTS', wf) == 1 then return {'dup', W} end
if ARGV[10] ~= '' then
  local other = redis.call('GET', KEYS[4])
  if other then
    local key = string.sub(wf, 1, #wf - #W) .. other
    if redis.call('EXISTS', key) == 1 and redis.call('PTTL', key) < 0 then return {'dup', other} end
  end
  redis.call('SET', KEYS[4], W, 'PX', ARGV[10])
end
redis.call('HSET', wf, 'g', ARGV[6], 'n', ARGV[7])
if ARGV[8] ~= '0' then redis.call('HSET', wf, 'vn', ARGV[8]) end
local k, r = tonumber(ARGV[11]), tonumber(ARGV[12])
local a = 13
for i = 1, k do
  redis.call('HSET', wf, 'a' .. ARGV[a], ARGV[a + 1])
  a = a + 2
end
for i = 1, r do
  release(ARGV[a], ARGV[a + 1], ARGV[a + 2])
  a = a + 3
end
return {'ok', ready, string.format('%d', timed), close()}
