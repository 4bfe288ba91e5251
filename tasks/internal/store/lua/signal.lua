-- signal keeps a signal of a workflow until a node of its task is open. Without a signal it returns the next one to deliver, or removes the
-- agenda's entry for the task if there is none.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] task, [3] id of the signal, [4] value: JSON without line breaks, [5] most signals of a
-- task to keep, [6] most bytes of these, [7] '0' if it is not to be kept
-- returns {open node, id of the signal, value} or {} without a signal; 'ok'; 'open' if a node of the task is open: the caller delivers the signal, and until that is done, the agenda has an
-- entry for it; 'full'; 'none' if it is not to be kept and no node is open; 'ended' if the workflow has ended; or 'unknown'
local ref, task, id = ARGV[1], ARGV[2], ARGV[3]
local wf, note = P .. 'w:' .. ref, ref .. '/!signal ' .. task

-- firstOpen returns the first open node of the task, or nil.
local function firstOpen()
  local element = redis.call('ZRANGEBYLEX', P .. 'open:' .. task, '[' .. ref .. '/', '+', 'LIMIT', 0, 1)[1]
  return element and string.sub(element, 1, #ref + 1) == ref .. '/' and string.sub(element, #ref + 2) or nil
end

if not id then
  local kept = redis.call('HGET', wf, SIGNALS .. task)
  local node = kept and firstOpen()
  if node then return {node, string.match(kept, '^(%S+) ([^\n]*)\n')} end
  redis.call('ZREM', P .. 'agenda', note)
  return {}
end
local have = redis.call('HMGET', wf, TASKS, PARTS, STOPPED, ABORTED, SIGNALS .. task, DELIVERED .. task)
if not have[1] or have[2] then return 'unknown' end
if have[3] == BY_REVOKE or have[4] or redis.call('PTTL', wf) >= 0 then return 'ended' end
if ARGV[7] == '0' and not firstOpen() then return 'none' end
local kept = have[5] or ''
if have[6] ~= id and not string.find('\n' .. kept, '\n' .. id .. ' ', 1, true) then -- else the reply of an earlier call was lost
  local _, n = string.gsub(kept, '\n', '')
  if n >= tonumber(ARGV[5]) or n > 0 and #kept + #ARGV[4] > tonumber(ARGV[6]) then return 'full' end
  redis.call('HSET', wf, SIGNALS .. task, kept .. id .. ' ' .. ARGV[4] .. '\n')
end
if not firstOpen() then return 'ok' end
redis.call('ZADD', P .. 'agenda', whole(now + SOON), note)
return 'open'
