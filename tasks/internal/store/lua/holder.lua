-- Shared by the scripts that store a new workflow; appended to lib.
-- KEYS as in lib
-- returns nothing: it defines holder

-- holder returns the reference of the workflow that exists with the id of a reference, or nil. That can be the reference
-- itself, if its call is repeated.
local function holder(ref)
  local chosen, generated = chosenKey(ref), string.match(ref, '^[^~]+~')
  local latest = chosen and redis.call('GET', chosen)
  if latest and redis.call('HEXISTS', P .. 'w:' .. latest, TASKS) == 1 then return latest end
  if redis.call('HEXISTS', P .. 'w:' .. generated, TASKS) == 1 then return generated end
  return nil
end
