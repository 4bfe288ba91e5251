-- repeat puts a running node back, to run again now or later.
-- KEYS[1..3] as in lib
-- ARGV[1] workflow, [2] node, [3] epoch it runs under ('' any), [4] worker it runs on ('' any),
-- [5] delay ms, [6] how: fail (an attempt is used up), again (none is), lost (nobody could run it), died
-- (its worker did), [7] message of the last error or '', [8] most losses, [9] losses from which on a death
-- counts only if the node was entered
-- returns {status, new epoch, due}: ok; stale (someone else has it); poison (lost too often, still running)
local wf, W, node = KEYS[1], ARGV[1], ARGV[2]
local rec = redis.call('HGET', wf, node)
if not rec then return {'stale'} end
local st, epoch, attempt, lost, at, owner = string.match(rec, '^(%a)|(%d*)|(%d*)|(%d*)|([%d-]*)|(.*)$')
if st ~= 'R' or (ARGV[3] ~= '' and epoch ~= ARGV[3]) or (ARGV[4] ~= '' and owner ~= ARGV[4]) then return {'stale'} end
if redis.call('HEXISTS', wf, 'x') == 1 then return {'stale'} end
local blamed = ARGV[6] == 'lost'
if ARGV[6] == 'died' then
  blamed = tonumber(lost) < tonumber(ARGV[9]) or redis.call('HGET', KEYS[3], W .. '/' .. node) == owner .. '!'
end
if blamed then
  if tonumber(lost) + 1 > tonumber(ARGV[8]) then return {'poison', epoch} end
  lost = tonumber(lost) + 1
end
if ARGV[6] == 'fail' then attempt = tonumber(attempt) + 1 end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local delay = tonumber(ARGV[5])
epoch = string.format('%d', epoch + 1)
local due = now + delay
local state, look = 'Q', now + 2000
if delay > 0 then state, look = (ARGV[6] == 'fail') and 'T' or 'D', due end
redis.call('HSET', wf, node, state .. '|' .. epoch .. '|' .. attempt .. '|' .. lost .. '|' .. string.format('%d', due) .. '|')
if ARGV[7] ~= '' then redis.call('HSET', wf, 'e' .. node, ARGV[7]) end
redis.call('HDEL', KEYS[3], W .. '/' .. node)
redis.call('ZADD', KEYS[2], look, W .. '/' .. node)
return {'ok', epoch, (delay > 0) and string.format('%d', due) or '0'}
