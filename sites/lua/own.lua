-- Makes a process the writer of a job, or keeps it so.
-- KEYS[1]  writerKey
-- ARGV[1]  owner: the process
-- ARGV[2]  milliseconds that it may write; 0 gives the right up
-- ARGV[3]  milliseconds until the key expires
-- Returns 0 when another process is the writer, 1 when this one now is and
-- another was before, 2 when this one is and was the last.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local owner = redis.call('HGET', KEYS[1], 'owner')
local til = tonumber(redis.call('HGET', KEYS[1], 'until') or '0')
if owner ~= ARGV[1] and til > now then
  return 0
end
if owner ~= ARGV[1] and ARGV[2] == '0' then
  return 0
end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'until', string.format('%.0f', ARGV[2] == '0' and 0 or now + tonumber(ARGV[2])))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return owner == ARGV[1] and 2 or 1
