-- limit changes a limit for a key or for all keys, or ends the change, and has the agenda look at the nodes that wait for it.
-- KEYS as in lib
-- ARGV[1] 'n' for the number or 'h' for the time until which it is held, [2] '<limit>\t<key>', or '<limit>' for all keys, [3] value, or ''
-- to end the change, [4] most changes of a shard
-- returns 1, or 0 if there are too many changes
local set, field = P .. 'limit:set', ARGV[1] .. ' ' .. ARGV[2]
if ARGV[3] == '' then
  redis.call('HDEL', set, field)
else
  redis.call('HSET', set, field, ARGV[3])
  if redis.call('HLEN', set) > tonumber(ARGV[4]) then
    redis.call('HDEL', set, field)
    return 0
  end
end
local every = ARGV[2] .. '\t'
for _, name in ipairs(redis.call('HKEYS', P .. 'limit:rules')) do
  if name == ARGV[2] or string.sub(name, 1, #every) == every then redis.call('ZADD', P .. 'agenda', whole(now), '!limit/' .. name) end
end
return 1
