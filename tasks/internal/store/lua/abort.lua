-- abort gives up a workflow that nobody can read: nothing of it is begun any more, and it expires.
-- KEYS[1..3] workflow hash, agenda, running
-- ARGV[1] workflow, [2] node that was to run, [3] failure, [4] retention ms, [5] channel that tells the end
-- returns 1, or 0 if it has ended
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('PTTL', KEYS[1]) >= 0 then return 0 end
redis.call('HSET', KEYS[1], '!', ARGV[3], 'x', '1')
redis.call('HDEL', KEYS[3], ARGV[1] .. '/' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
for _, f in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(f, 1, 1) == 'h' then
    local g = string.sub(f, 2)
    redis.call('DEL', KEYS[1] .. ':h' .. g, KEYS[1] .. ':w' .. g)
  end
end
redis.call('PUBLISH', ARGV[5], 1)
return 1
