-- Gives up a lease because the run failed; the item is tried again later, or
-- ends in error when its attempts are used up.
-- KEYS: common.lua. ARGV: id, token, note, delay ms, counted 0|1, attempt
-- limit.
-- Returns the item's state letter; "" if the lease was lost, "?" if there is
-- no such item.
local id, token = ARGV[1], tonumber(ARGV[2])
local r = load(id)
if not r then return "?" end
if r.token ~= token then return "" end
if r.state == "i" then
  if sealed then return "" end
  local delay = tonumber(ARGV[4])
  fail(id, r, ARGV[3], ARGV[5] == "1", tonumber(ARGV[6]), delay > 0 and now + delay or 0)
  finish(1)
  return r.state
end
if r.state == "d" or r.state == "s" then return "" end
return r.state
