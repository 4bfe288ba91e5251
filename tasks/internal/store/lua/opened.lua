-- opened lists the tasks with open nodes, by name, and the number of nodes. It removes tasks whose open nodes
-- belonged to expired workflows.
-- KEYS as in lib
-- ARGV[1] most names
-- returns {name, number of nodes, …}
local out = {}
for _, task in ipairs(redis.call('ZRANGEBYLEX', P .. 'opentasks', '-', '+', 'LIMIT', 0, ARGV[1])) do
  local n = redis.call('ZCARD', P .. 'open:' .. task)
  if n == 0 then
    redis.call('ZREM', P .. 'opentasks', task)
  else
    out[#out + 1] = task
    out[#out + 1] = n
  end
end
return out
