-- bump gives up a wake-task that will not come, and asks for another one.
-- KEYS as in lib
-- ARGV[1] queue, [2] its generation
-- returns {queue, generation} of the wake-task to send, or {}
local k = P .. 'wake:' .. ARGV[1]
if (redis.call('HGET', k, 'generation') or '0') == ARGV[2] then
  redis.call('HDEL', k, 'pending')
  redis.call('HINCRBY', k, 'generation', 1)
  want(ARGV[1])
end
return wants
