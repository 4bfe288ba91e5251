-- Reads items.
-- KEYS: common.lua. ARGV: ids.
-- Returns per item record ("" if unknown), spec, worker, note, result given
-- 0|1, result, ms until it is available, ms until its lease ends (both 0 if
-- they do not apply), and after the last item unix ms now.
local out = {}
for i, id in ipairs(ARGV) do
  local at = 8 * (i - 1)
  local result = redis.call("HGET", RESULT, id)
  local due = redis.call("ZSCORE", DELAYED, id)
  local ends = redis.call("ZSCORE", LEASED, id)
  out[at + 1] = redis.call("HGET", REC, id) or ""
  out[at + 2] = redis.call("HGET", SPEC, id) or ""
  out[at + 3] = redis.call("HGET", WORKER, id) or ""
  out[at + 4] = redis.call("HGET", NOTE, id) or ""
  out[at + 5] = result and 1 or 0
  out[at + 6] = result or ""
  out[at + 7] = due and tonumber(due) - now or 0
  out[at + 8] = ends and tonumber(ends) - now or 0
end
out[#out + 1] = now
return out
