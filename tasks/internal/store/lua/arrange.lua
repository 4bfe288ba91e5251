-- Appended to lib, before the scripts that change schedules. KEYS and ARGV of the calling script. Returns nothing: it defines arrange and submit.

-- arrange puts a schedule into the index of its shard: at the due time of its next tick unless it is paused or, if it has requested
-- ticks, at look (unix ms) if that is earlier. It returns in how many ms something is due; nil for never.
local function arrange(name, look)
  local had = redis.call('HMGET', P .. 'schedule:e:' .. name, 'due', 'paused')
  local at = not had[2] and had[1] or nil
  if redis.call('EXISTS', P .. 'schedule:due:' .. name) == 1 and (not at or look < tonumber(at)) then at = whole(look) end
  if not at then
    redis.call('ZREM', P .. 'schedules', name)
    return false
  end
  redis.call('ZADD', P .. 'schedules', at, name)
  return whole(math.max(0, math.ceil(at - now)))
end

local submit -- stores the workflow of a tick; only the script fire has it
