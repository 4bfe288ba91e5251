-- handled makes nodes due that wait for a handler. It keeps a node that its worker has not delayed yet.
-- KEYS as in lib
-- ARGV[1] '<queue> <task>', [2] number of nodes that earlier calls have kept, [3] most nodes to look at
-- returns {number of nodes that are kept, 1 if there are more nodes, else 0}
local LATE = 60000 -- ms that the worker of a node may take to delay it
local nodes = P .. 'unhandled:' .. ARGV[1]
local kept = tonumber(ARGV[2])
local list = redis.call('ZRANGE', nodes, kept, kept + ARGV[3] - 1, 'WITHSCORES')
local due, gone = {}, {}
for i = 1, #list, 2 do
  local wf, node = string.match(list[i], '^([^/]+)/(.+)$')
  local have = redis.call('HMGET', P .. 'w:' .. wf, TASKS, node)
  local state, at = string.match(have[2] or '', '^(.)|%d*|%d*|(%d*)|')
  if state == DELAYED and tonumber(at) <= list[i + 1] + LATE then
    due[#due + 1] = whole(now)
    due[#due + 1] = list[i]
  elseif have[1] and (not have[2] or string.sub(have[2], 1, 1) == READY) then
    kept = kept + 1
    list[i] = false
  end
  if list[i] then gone[#gone + 1] = list[i] end
end
bulk('ZADD', P .. 'agenda', due)
bulk('ZREM', nodes, gone)
if redis.call('EXISTS', nodes) == 0 then redis.call('ZREM', P .. 'unhandled', ARGV[1]) end
return {whole(kept), #list == 2 * ARGV[3] and 1 or 0}
