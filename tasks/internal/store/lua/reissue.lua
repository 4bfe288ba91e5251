-- reissue gives a node that was handed over and lost on the way another epoch.
-- KEYS[1] workflow hash, KEYS[2] agenda
-- ARGV[1] workflow, [2] node, [3] epoch it was handed over under
-- returns the new epoch, or -1 when it has begun or the workflow is gone
local have = redis.call('HMGET', KEYS[1], 'n', ARGV[2])
if not have[1] then return -1 end
local rec = have[2]
local epoch, attempt, lost = '0', '0', '0'
if rec then
  epoch, attempt, lost = string.match(rec, '^Q|(%d*)|(%d*)|(%d*)|')
  if not epoch then return -1 end
end
if epoch ~= ARGV[3] or not redis.call('ZSCORE', KEYS[2], ARGV[1] .. '/' .. ARGV[2]) then return -1 end
epoch = string.format('%d', epoch + 1)
redis.call('HSET', KEYS[1], ARGV[2], 'Q|' .. epoch .. '|' .. attempt .. '|' .. lost .. '|0|')
return tonumber(epoch)
