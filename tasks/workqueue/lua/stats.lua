-- Reads the counters.
-- KEYS: common.lua. ARGV: none.
-- Returns {queued, in_progress, done, skipped, error, delayed, ready,
-- leased, failed, outputs, moves, paused 0|1}.
local c = redis.call("HMGET", COUNTS, "queued", "in_progress", "done", "skipped", "error")
local out = {}
for i = 1, 5 do out[i] = tonumber(c[i] or 0) end
out[6] = redis.call("ZCARD", DELAYED)
out[7] = redis.call("ZCARD", READY)
out[8] = redis.call("ZCARD", LEASED)
out[9] = redis.call("ZCARD", FAILED)
out[10] = redis.call("XLEN", OUT)
out[11] = tonumber(redis.call("HGET", META, "moves") or 0)
out[12] = redis.call("HGET", META, "paused") and 1 or 0
return out
