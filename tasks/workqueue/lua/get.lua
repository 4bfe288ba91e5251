-- Reads items.
-- KEYS: common.lua. ARGV: ids.
-- Returns per item record ("" if unknown), spec, note, result given
-- 0|1, result, ms until it is available, ms until its lease ends (both 0 if
-- they do not apply), and after the last item unix ms now.
local out = {}
for i, id in ipairs(ARGV) do
  local at = 7 * (i - 1)
  local rec = redis.call("HGET", REC, id) or ""
  local state = string.sub(rec, 1, 1)
  local ended = string.find("dse", state, 1, true)
  local result = ended and redis.call("HGET", RESULT, id)
  local due = state == "w" and redis.call("ZSCORE", DELAYED, id)
  local ends = state == "i" and redis.call("ZSCORE", LEASED, id)
  out[at + 1] = rec
  out[at + 2] = rec ~= "" and redis.call("HGET", SPEC, id) or ""
  out[at + 3] = rec ~= "" and redis.call("HGET", NOTE, id) or ""
  out[at + 4] = result and 1 or 0
  out[at + 5] = result or ""
  out[at + 6] = due and tonumber(due) - now or 0
  out[at + 7] = ends and tonumber(ends) - now or 0
end
out[#out + 1] = now
return out
