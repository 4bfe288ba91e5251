-- unhandled lists a node that waits for a worker with a handler. A repeated call changes nothing.
-- KEYS as in lib
-- ARGV[1] '<queue> <task>', [2] '<workflow>/<node>', [3] ms that it waits, [4] 1 if it has not waited since it became ready
-- returns {ms until its wait ends; 0 or less once it has ended}
local KEEP = 7200000 -- ms after its end for which a wait is known
local names, nodes = P .. 'unhandled', P .. 'unhandled:' .. ARGV[1]
local ends = tonumber(redis.call('ZSCORE', nodes, ARGV[2]) or '')
if not ends or ARGV[4] == '1' then
  ends = now + ARGV[3]
  redis.call('ZREMRANGEBYSCORE', nodes, '-inf', whole(now - KEEP))
  redis.call('ZADD', nodes, whole(ends), ARGV[2])
end
redis.call('ZREMRANGEBYSCORE', names, '-inf', whole(now - KEEP))
for key, member in pairs({[nodes] = ARGV[2], [names] = ARGV[1]}) do
  local last = tonumber(redis.call('ZSCORE', key, member) or '0')
  if last < ends then redis.call('ZADD', key, whole(ends), member) end
  redis.call('PEXPIRE', key, whole(math.max(redis.call('PTTL', key), ends - now + KEEP)))
end
return {whole(ends - now)}
