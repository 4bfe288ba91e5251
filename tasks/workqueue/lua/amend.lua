-- Moves an item from one terminal state to another, or replaces its note and
-- result.
-- KEYS: common.lua. ARGV: id, state d|s|e it must be in, state d|s|e, note,
-- result given 0|1, result.
-- Returns "ok", also if nothing had to change; "sealed" if the queue is; else the
-- item's state letter, "" if there is no such item.
local id, from, to, note, result = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[6]
if ARGV[5] ~= "1" then result = false end
local r = load(id)
if not r then return "" end
if r.state == to and (redis.call("HGET", NOTE, id) or "") == note and redis.call("HGET", RESULT, id) == result then
  return "ok"
end
if r.state ~= from then return r.state end
if sealed then return "sealed" end
leave(id, r)
conclude(id, r, to, note)
setNote(id, note)
if result then redis.call("HSET", RESULT, id, result) else redis.call("HDEL", RESULT, id) end
if to ~= "e" then ending(id, r, note) end
finish(1)
return "ok"
