-- stop revokes, cancels, pauses, resumes or deletes a workflow, or changes what it waits for. Workers fail the nodes of a cancelled
-- workflow that they take, except for nodes that handle failures, and drop those of a revoked one: the caller makes the nodes terminal that no
-- worker has, and until that is done, the agenda has an entry for it. A take parks the ready nodes of a paused workflow that it finds, so that no
-- worker asks for them again.
-- KEYS as in lib
-- ARGV[1] reference of the workflow, [2] operation: revoke; replace: the same, only if no task of it has begun; cancel; deadline: the same, if
-- it has a deadline that has passed; pause; resume; begin: it has waited for the end of others with its unique key; order: the workflow [3] waits
-- for its end, and is then named among the steps for its caller; drop: it has ended, and is deleted
-- returns {'ok'}, also if nothing changed; {'cancelled'}, to cancel and deadline if it has ended, too; {'ended'}, {'revoked'} or {'unknown'};
-- {'begun'} to replace; {'early'} to deadline; {'running'} to drop
local wf, op = P .. 'w:' .. ARGV[1], ARGV[2]
local have = redis.call('HMGET', wf, TASKS, PARTS, STOPPED, ABORTED, FAIRNESS, DEADLINE, BEFORE, UNBEGUN)
local stopped = have[3]
local function note(at, name) redis.call('ZADD', P .. 'agenda', at, ARGV[1] .. '/!' .. name) end
local function noted(name) redis.call('ZREM', P .. 'agenda', ARGV[1] .. '/!' .. name) end

-- unpark puts the parked nodes on their ready lists.
local function unpark()
  for _, parked in ipairs(redis.call('LRANGE', wf .. ':paused', 0, -1)) do
    local lane, el = string.match(parked, '^(%S+) (%S+)')
    push(lane, have[5] or ARGV[1], {el})
  end
  redis.call('DEL', wf .. ':paused')
  saveDepth()
end

if op == 'deadline' then
  if have[6] and tonumber(have[6]) > now then -- the clock was set back
    note(have[6], op)
    return {'early'}
  end
  noted(op)
  if not have[6] then return {'early'} end -- it was retried after the deadline
end
if not have[1] or have[2] then return {'unknown'} end
local over = redis.call('PTTL', wf) >= 0
if op == 'drop' then
  if not over then return {'running'} end
  redis.call('DEL', wf, wf .. ':log', wf .. ':out') -- the key of a chosen ID expires: it may be of a later workflow by now
  return {'ok'}
elseif op == 'order' and not over then
  redis.call('HSET', wf, NEXT, ARGV[3])
  return {'ok'}
end
local cancels, revokes = op == 'cancel' or op == 'deadline', op == 'revoke' or op == 'replace'
local cancelled, paused = stopped == BY_CANCEL or stopped == BY_DEADLINE, stopped == BY_PAUSE or stopped == BY_ORDER
if have[4] then return {'ended'} end
if stopped == BY_REVOKE and not revokes then return {'revoked'} end
if over then return {cancels and stopped and 'cancelled' or 'ended'} end
if revokes then
  if op == 'replace' and not have[8] and stopped ~= BY_ORDER and stopped ~= BY_REVOKE then return {'begun'} end
  redis.call('DEL', wf .. ':paused')
  redis.call('HSET', wf, STOPPED, BY_REVOKE)
  note(whole(now + SOON), 'revoke')
  return {'ok'}
elseif cancels then
  if not cancelled then redis.call('HSET', wf, STOPPED, op == 'deadline' and BY_DEADLINE or BY_CANCEL) end
  note(whole(now + SOON), 'cancel')
  if paused then unpark() end
  return {'ok'}
elseif cancelled then
  return {'cancelled'}
elseif op == 'pause' and stopped ~= BY_PAUSE then
  redis.call('HSET', wf, STOPPED, BY_PAUSE)
elseif op == 'resume' and stopped == BY_PAUSE and have[7] then
  redis.call('HSET', wf, STOPPED, BY_ORDER)
  note(whole(now), 'order')
elseif op == 'resume' and stopped == BY_PAUSE or op == 'begin' and stopped == BY_ORDER then
  redis.call('HDEL', wf, STOPPED, BEFORE)
  if have[7] then noted('order') end
  unpark()
else
  return {'ok'}
end
redis.call('PUBLISH', channel('changed:' .. ARGV[1]), '')
return {'ok'}
