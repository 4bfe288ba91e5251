-- due makes nodes runnable whose time has come.
-- KEYS and ARGV as in lib. An item: [1] workflow, [2] node
-- returns per item {status, epoch}: run, wait (not yet), gone (no such workflow), W (no state), or the state
-- of a node that is not timed
return each(function(i, p)
  wf, W = KEYS[2 + i], ARGV[p]
  local node = ARGV[p + 1]
  local rec = redis.call('HGET', wf, node)
  if not rec then return {redis.call('EXISTS', wf) == 1 and 'W' or 'gone', '0'} end
  local st, epoch, attempt, lost, at = string.match(rec, '^(%a)|(%d*)|(%d*)|(%d*)|([%d-]*)|')
  if st ~= 'D' and st ~= 'T' then return {string.sub(rec, 1, 1), epoch or '0'} end
  if tonumber(at) > now then
    note(at, node)
    return {'wait', epoch}
  end
  redis.call('HSET', wf, node, 'Q|' .. epoch .. '|' .. attempt .. '|' .. lost .. '|0|')
  note(now + GRACE, node)
  return {'run', epoch}
end)
