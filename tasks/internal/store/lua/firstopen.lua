-- Shared by the scripts of signals; appended to lib.
-- KEYS as in lib
-- returns nothing: it defines firstOpen

-- firstOpen returns the first open node of a task in a workflow, or nil.
local function firstOpen(ref, task)
  local element = redis.call('ZRANGEBYLEX', P .. 'open:' .. task, '[' .. ref .. '/', '+', 'LIMIT', 0, 1)[1]
  return element and string.sub(element, 1, #ref + 1) == ref .. '/' and string.sub(element, #ref + 2) or nil
end
