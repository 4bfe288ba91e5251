-- KEYS and ARGV of the calling script; appended to lib. Returns nothing: it defines remember.

-- remember adds a run that was followed by another to the stored runs of a node: the first one and the last ones. run
-- is 'attempt|began|ended|outcome|worker|[code, message]', with times in unix ms and the brackets as JSON; an empty
-- attempt is the current one.
local MOST_RUNS = 12
local function remember(wf, node, run)
  local have = redis.call('HMGET', wf, RUNS .. node, node)
  local list, last = {}, 0
  for line in string.gmatch(have[1] or '', '[^\n]+') do
    list[#list + 1] = line
    local number = string.match(line, '^(%d+)|')
    if number then last = tonumber(number) end
  end
  if string.sub(run, 1, 1) == '|' then
    local attempts = string.match(have[2] or '', '^[{WAITING}]|(%d+)|')
    run = whole((attempts or 0) + 1) .. run
  end
  if #list == MOST_RUNS then table.remove(list, 2) end
  list[#list + 1] = whole(last + 1) .. '|' .. run
  redis.call('HSET', wf, RUNS .. node, table.concat(list, '\n'))
end
