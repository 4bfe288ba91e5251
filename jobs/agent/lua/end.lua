-- Takes an assignment that has ended off its agent, and counts it once. An
-- outcome replaces the outcome "lost", which a call that came second may have
-- stored first.
-- KEYS: record of the assignment, held by the agent, agents, numbers of the
-- agent, usage of the agent, hour.
-- ARGV: id, agent, outcome, digest of the response or "", seconds to keep the
-- record, error or "", unix ms at which it began or "", most names of the agent's
-- usage.
-- Returns {1 if this call has counted it, 2 if its outcome has replaced "lost", or
-- else 0, its outcome, digest, and the usage that was counted as JSON}.
local RECORD, AGENTS, NUMBERS, USAGE, HOUR = KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local agent, outcome, digest = ARGV[2], ARGV[3], ARGV[4]
local held = redis.call("ZREM", KEYS[2], ARGV[1])
local before = redis.call("HMGET", RECORD, "outcome", "digest", "usage")
if before[1] and (before[1] ~= "lost" or outcome == "lost") then return { 0, before[1], before[2] or "", "" } end
local first = not before[1]
if first and outcome == "lost" and held == 0 then return { 0, outcome, "", "" } end
redis.call("HSET", RECORD, "outcome", outcome, "digest", digest)
redis.call("EXPIRE", RECORD, ARGV[5])

-- add adds numbers to fields of a hash with at most so many. A total that is too large stays. A hash with a
-- new field expires after so many seconds, if these are given.
local function add(key, numbers, most, expires)
  local fields = {}
  for field in pairs(numbers) do fields[#fields + 1] = field end
  local totals = {}
  if #fields == 0 then return end
  local room
  for i, old in ipairs(redis.call("HMGET", key, unpack(fields))) do
    if not old then
      room = (room or tonumber(most) - redis.call("HLEN", key)) - 1
    end
    local total = tonumber(old or 0) + numbers[fields[i]]
    if total > 2^53 then total = tonumber(old or 0) end
    if old or room >= 0 then
      totals[#totals + 1] = fields[i]
      totals[#totals + 1] = string.format("%.0f", total)
    end
  end
  if #totals > 0 then redis.call("HSET", key, unpack(totals)) end
  if expires and room then redis.call("EXPIRE", key, expires) end
end

local usage = {}
if first then usage = cjson.decode(before[3] or "{}") end
local out = { first and 1 or 2, outcome, digest, first and before[3] or "" }

local ms = math.max(0, now - tonumber(ARGV[7] ~= "" and ARGV[7] or now))
if redis.call("HEXISTS", AGENTS, agent) == 0 then return out end
local failed = outcome ~= "completed" and outcome ~= "released" and 1 or 0
redis.call("HSET", NUMBERS, "idle", string.format("%.0f", now))
if outcome == "completed" then redis.call("HINCRBY", NUMBERS, "done", 1) end
if not first then failed = failed - 1 end -- it was counted as lost
if failed ~= 0 then redis.call("HINCRBY", NUMBERS, "failed", failed) end
if ARGV[6] ~= "" then redis.call("HSET", NUMBERS, "last_error", ARGV[6]) end
if not first then return out end
add(USAGE, usage, ARGV[8])
local did = { [agent .. " assignments"] = 1, [agent .. " ms"] = ms }
if failed ~= 0 then did[agent .. " failed"] = failed end
for _, name in ipairs({ "requests", "tokens" }) do
  if usage[name] then did[agent .. " " .. name] = usage[name] end
end
add(HOUR, did, math.huge, 26 * 3600)
return out
