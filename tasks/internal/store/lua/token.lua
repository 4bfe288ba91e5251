-- token gives a node a new token, and invalidates the previous one. Only its hash is stored.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] node, [3] hash, [4] attempt that the token is for, or '' for the attempt of an open node, [5] worker
-- that must have the lease of the node with the value [6], with an attempt
-- returns 'ok'; 'unknown' if the workflow does not exist; 'ended' if the node has ended; 'closed' if it is not open;
-- 'gone' if the worker has lost the lease
local wf, node, attempt = P .. 'w:' .. ARGV[1], ARGV[2], ARGV[4]
local have = redis.call('HMGET', wf, TASKS, STOPPED, PARTS, node)
if not have[1] or have[3] then return 'unknown' end
local state = string.sub(have[4] or '', 1, 1)
if have[2] == BY_REVOKE or (state ~= '' and string.find('{TERMINAL}{PLANNED}', state, 1, true)) then return 'ended' end
if attempt == '' then
  attempt = string.match(have[4] or '', '^{OPEN}|(%d*)|')
  if not attempt then return 'closed' end
elseif state == OPEN or redis.call('HGET', P .. 'lease:' .. ARGV[5], ARGV[1] .. '/' .. node) ~= ARGV[6] then
  return 'gone'
end
redis.call('HSET', wf, TOKEN .. node, attempt .. ' ' .. ARGV[3])
return 'ok'
