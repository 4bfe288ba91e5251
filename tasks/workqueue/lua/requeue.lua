-- Puts terminal items back into the queue with no attempts used.
-- KEYS: common.lua. ARGV: dry run 0|1, state letters that may be requeued,
-- how often an item may be requeued in its life (-1 any), 1 to do nothing in a
-- sealed queue or else 0, then ids.
-- Returns the ids that were, or in a dry run would be, requeued; or -2 if
-- nothing was done because the queue is sealed.
if sealed and ARGV[4] == "1" then return -2 end
local dry, states, most = ARGV[1] == "1", ARGV[2], tonumber(ARGV[3])
local out = {}
for i = 5, #ARGV do
  local id = ARGV[i]
  local r = load(id)
  if r and string.find(states, r.state, 1, true) and (most < 0 or r.retried < most) then
    out[#out + 1] = id
    if not dry then
      leave(id, r)
      redis.call("HDEL", RESULT, id)
      r.attempts, r.token, r.retried = 0, 0, r.retried + 1
      enter(id, r, 0)
    end
  end
end
if not dry then finish(#out) end
return out
