-- Adds items that the queue does not know yet; leaves the others as they are.
-- KEYS: common.lua. ARGV: per item id, spec, rank, ready at (unix ms; 0 now),
-- max attempts (0 the queue's), lane.
-- Returns how many were new.
local n = #ARGV / 6
local seq = redis.call("HINCRBY", META, "seq", n) - n
local added = 0
for i = 0, n - 1 do
  local at = 6 * i
  local id = ARGV[at + 1]
  if redis.call("HSETNX", SPEC, id, ARGV[at + 2]) == 1 then
    added = added + 1
    local due = tonumber(ARGV[at + 4])
    local r = {
      state = "q", attempts = 0, retried = 0, token = 0, rank = tonumber(ARGV[at + 3]),
      seq = seq + i + 1, max = tonumber(ARGV[at + 5]), lane = ARGV[at + 6],
    }
    if due > now then
      r.state = "w"
      redis.call("ZADD", DELAYED, due, id)
      freed = true
    else
      makeReady(id, r)
    end
    save(id, r)
  end
end
if added > 0 then
  redis.call("HSETNX", META, "v", 1)
  count("queued", added)
end
finish(added)
return added
