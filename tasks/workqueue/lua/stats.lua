-- Reads the counters.
-- KEYS: common.lua. ARGV: none.
-- Returns {queued, in_progress, done, skipped, error, delayed, ready,
-- leased, failed, outputs, moves, paused 0|1, leases that expired ever, ms that
-- the next item has been ready, sealed 0|1, items that were refused}.
local c = redis.call("HMGET", META, "queued", "in_progress", "done", "skipped", "error", "expired")
local out = {}
for i = 1, 5 do out[i] = number(c[i]) end
out[6] = redis.call("ZCARD", DELAYED)
out[7] = redis.call("ZCARD", READY)
out[8] = redis.call("ZCARD", LEASED)
out[9] = redis.call("ZCARD", FAILED)
out[10] = redis.call("XLEN", OUT)
out[11] = number(moves)
out[12] = paused and 1 or 0
out[13] = number(c[6])
out[14] = 0
out[15] = sealed and 1 or 0
out[16] = redis.call("SCARD", REFUSED)
local lane = redis.call("ZRANGE", LANES, 0, 0)[1]
if lane then
  local head = redis.call("ZRANGEBYLEX", READY, "[" .. lane .. "\0", "(" .. lane .. "\1", "LIMIT", 0, 1)[1]
  local r = head and load(string.sub(head, #lane + 19))
  if r then out[14] = math.max(0, now - r.since) end
end
return out
