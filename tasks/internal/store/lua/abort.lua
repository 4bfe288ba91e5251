-- abort gives up a workflow that nobody can read: nothing of it is taken any more, and it expires.
-- KEYS as in lib
-- ARGV[1] workflow, [2] name or '', [3] failure, [4] retention ms
-- returns 1, or 0 if it has ended
local wf = P .. 'w:' .. ARGV[1]
if redis.call('TYPE', wf).ok ~= 'hash' then
  redis.call('DEL', wf)
  dropped(ARGV[1], ARGV[2])
  return 1
end
if redis.call('PTTL', wf) >= 0 then return 0 end
redis.call('HSET', wf, '!', ARGV[3], 'x', '1')
redis.call('PEXPIRE', wf, ARGV[4])
for _, f in ipairs(redis.call('HKEYS', wf)) do
  if string.sub(f, 1, 1) == 'h' then redis.call('DEL', wf .. ':' .. f, wf .. ':w' .. string.sub(f, 2)) end
end
dropped(ARGV[1], ARGV[2])
redis.call('PUBLISH', 'muster:done:' .. ARGV[1], 1)
return 1
