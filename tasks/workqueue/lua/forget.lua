-- Removes items in a terminal state.
-- KEYS: common.lua. ARGV: ids.
-- Returns the ids that are not in the queue now.
local counter = { d = "done", s = "skipped", e = "error" }
local out, moved = {}, 0
for _, id in ipairs(ARGV) do
  local r = load(id)
  if r and counter[r.state] then
    redis.call("HDEL", SPEC, id)
    redis.call("HDEL", REC, id)
    redis.call("HDEL", NOTE, id)
    redis.call("HDEL", RESULT, id)
    redis.call("ZREM", FAILED, id)
    count(counter[r.state], -1, r.lane)
    moved = moved + 1
    r = nil
  end
  if not r then out[#out + 1] = id end
end
finish(moved)
return out
