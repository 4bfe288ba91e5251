-- due makes a node runnable whose time has come.
-- KEYS[1] workflow hash, KEYS[2] agenda
-- ARGV[1] workflow, [2] node
-- returns {status, epoch}: run, wait (not yet), or the state of a node that is not timed
local rec = redis.call('HGET', KEYS[1], ARGV[2])
if not rec then return {redis.call('EXISTS', KEYS[1]) == 1 and 'W' or 'gone', '0'} end
local st, epoch, attempt, lost, at = string.match(rec, '^(%a)|(%d*)|(%d*)|(%d*)|([%d-]*)|')
if st ~= 'D' and st ~= 'T' then return {string.sub(rec, 1, 1), epoch or '0'} end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
if tonumber(at) > now then
  redis.call('ZADD', KEYS[2], at, ARGV[1] .. '/' .. ARGV[2])
  return {'wait', epoch}
end
redis.call('HSET', KEYS[1], ARGV[2], 'Q|' .. epoch .. '|' .. attempt .. '|' .. lost .. '|0|')
redis.call('ZADD', KEYS[2], now + 2000, ARGV[1] .. '/' .. ARGV[2])
return {'run', epoch}
