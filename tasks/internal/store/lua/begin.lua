-- begin lets a worker run a node, if it is still to be run.
-- KEYS[1..3] as in lib
-- ARGV[1] workflow, [2] node, [3] epoch of the delivery, [4] worker, [5] graph fields wanted (comma),
-- [6] 1 if the worker does not run it: what Redis says it does, it has not heard of
-- returns {status, attempts so far, losses so far, now, input, graph…}; status: run, gone (no such
-- workflow), done, stale (another delivery is due), busy (runs, or runs elsewhere)
local wf, W, node = KEYS[1], ARGV[1], ARGV[2]
local got = redis.call('HMGET', wf, node, 'n', 'x', 'a' .. node)
if not got[2] then return {'gone'} end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local rec = got[1]
local attempt, lost = '0', '0'
if rec then
  local st, epoch
  st, epoch, attempt, lost = string.match(rec, '^(%a)|(%d*)|(%d*)|(%d*)|')
  local mine = ARGV[6] == '1' and st == 'R' and string.match(rec, '|([^|]*)$') == ARGV[4]
  if st == 'R' and epoch == ARGV[3] and not mine then return {'busy'} end
  if st ~= 'Q' and st ~= 'R' then return {'done'} end
  if epoch ~= ARGV[3] or (st == 'R' and not mine) then return {'stale'} end
elseif ARGV[3] ~= '0' then
  return {'stale'}
end
if got[3] then return {'done'} end
-- A node without a record was released for its first run if the agenda has it, and waits otherwise.
if redis.call('ZREM', KEYS[2], W .. '/' .. node) == 0 and not rec then return {'stale'} end
redis.call('HSET', wf, node, 'R|' .. ARGV[3] .. '|' .. attempt .. '|' .. lost .. '|' .. string.format('%d', now) .. '|' .. ARGV[4])
redis.call('HSET', KEYS[3], W .. '/' .. node, ARGV[4])
local out = {'run', attempt, lost, string.format('%d', now), got[4] or false}
if ARGV[5] ~= '' then
  for f in string.gmatch(ARGV[5], '[^,]+') do out[#out + 1] = redis.call('HGET', wf, f) or false end
end
return out
