-- Takes an assignment that has ended off its agent, and counts it once. An
-- outcome replaces the outcome "lost", which a call that came second may have
-- stored first.
-- KEYS: record of the assignment, held by the agent, numbers of the agent, hour.
-- ARGV: id, agent, outcome, digest of the response or "", seconds to keep the
-- record, error or "", unix ms of now, ms that it lasted, its usage as JSON or "" for the usage in the record, most
-- fields of the numbers.
-- Returns {1 if this call has counted it, 2 if its outcome has replaced "lost", or
-- else 0, its outcome, digest, and the usage that was counted as JSON}.
local RECORD, NUMBERS, HOUR = KEYS[1], KEYS[3], KEYS[4]
local agent, outcome, digest = ARGV[2], ARGV[3], ARGV[4]
local held = redis.call("ZREM", KEYS[2], ARGV[1])
local before, beforeDigest, used = string.match(redis.call("GET", RECORD) or "  ", "^(%a*) (%x*) (.*)$")
if before ~= "" and (before ~= "lost" or outcome == "lost") then return { 0, before, beforeDigest, "" } end
local first = before == ""
if first and outcome == "lost" and held == 0 then return { 0, outcome, "", "" } end
if not first then used = "" elseif ARGV[9] ~= "" then used = ARGV[9] end
redis.call("SET", RECORD, outcome .. " " .. digest .. " " .. used, "EX", ARGV[5])

-- add adds numbers to fields of a hash with at most so many, and sets others. A total that is too large stays. It returns
-- whether the hash has a new field, or nil if it has no field idle although that must be set.
local function add(key, numbers, most, set)
  local fields = {}
  for field in pairs(numbers) do fields[#fields + 1] = field end
  local old = redis.call("HMGET", key, "idle", unpack(fields))
  if set[1] and not old[1] then return nil end
  local room
  for i, field in ipairs(fields) do
    local n = old[i + 1]
    if not n then room = (room or most - redis.call("HLEN", key)) - 1 end
    local total = tonumber(n or 0) + numbers[field]
    if total > 2^53 then total = tonumber(n or 0) end
    if n or room >= 0 then
      set[#set + 1] = field
      set[#set + 1] = string.format("%.0f", total)
    end
  end
  if set[1] then redis.call("HSET", key, unpack(set)) end
  return room ~= nil
end

local usage = cjson.decode(used ~= "" and used or "{}")
local failed = outcome ~= "completed" and outcome ~= "released" and 1 or 0
local did = { [agent .. " assignments"] = 1, [agent .. " ms"] = tonumber(ARGV[8]) }
if failed == 1 then did[agent .. " failed"] = 1 end
local numbers = {}
for name, n in pairs(usage) do numbers["usage " .. name] = n end
for _, name in ipairs({ "requests", "tokens" }) do did[agent .. " " .. name] = usage[name] end
if outcome == "completed" then numbers.done = 1 end
if not first then failed = failed - 1 end -- it was counted as lost
if failed ~= 0 then numbers.failed = failed end
local set = { "idle", ARGV[7] }
if ARGV[6] ~= "" then set[3], set[4] = "last_error", ARGV[6] end
if add(NUMBERS, numbers, tonumber(ARGV[10]), set) ~= nil and first and add(HOUR, did, math.huge, {}) then
  redis.call("EXPIRE", HOUR, 26 * 3600)
end
return { first and 1 or 2, outcome, digest, used }
