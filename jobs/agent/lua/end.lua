-- Takes an assignment that has ended off its agent, and counts it once. An
-- outcome replaces the outcome "lost", which a call that came second may have
-- stored first.
-- KEYS: record of the assignment, held by the agent, agents, numbers of the
-- agent, usage of the agent, used by the job, stale, took, hour.
-- ARGV: id, agent, outcome, digest of the response or "", seconds to keep the
-- record, error or "", job, unix ms at which it began or "", bounds of took in
-- seconds, most names of the agent's usage, most fields that the job has used.
-- Returns {1 if this call has counted it else 0, its outcome, digest and span, then
-- the changed fields and totals of the usage of the job}.
local RECORD, AGENTS, NUMBERS, USAGE, USED, HOUR = KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[9]
local agent, outcome, digest = ARGV[2], ARGV[3], ARGV[4]
local held = redis.call("ZREM", KEYS[2], ARGV[1])
local before = redis.call("HMGET", RECORD, "outcome", "digest", "span", "usage")
if before[1] and (before[1] ~= "lost" or outcome == "lost") then return { 0, before[1], before[2] or "", "" } end
local first = not before[1]
if first and outcome == "lost" and held == 0 then return { 0, outcome, "", "" } end
redis.call("HSET", RECORD, "outcome", outcome, "digest", digest)
redis.call("HDEL", RECORD, "span", "usage")
redis.call("EXPIRE", RECORD, ARGV[5])
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

-- add adds to a field of a hash with at most so many; a total that is too large stays.
local function add(key, field, n, most)
  if redis.call("HEXISTS", key, field) == 1 or redis.call("HLEN", key) < tonumber(most) then
    redis.pcall("HINCRBY", key, field, n)
  end
end

local out = { first and 1 or 0, outcome, digest, before[3] or "" }
local function used(name, n)
  local field = agent .. " " .. name
  add(USED, field, n, ARGV[11])
  local total = redis.call("HGET", USED, field)
  if total then
    out[#out + 1] = field
    out[#out + 1] = total
  end
end
if outcome == "completed" then used("assignments", 1) end
local usage = {}
if first then usage = cjson.decode(before[4] or "{}") end
for name, n in pairs(usage) do used(name, string.format("%.0f", n)) end
if #out > 4 then
  redis.call("EXPIRE", USED, 30 * 86400)
  redis.call("ZADD", KEYS[7], now, ARGV[7])
end

local began = tonumber(ARGV[8])
local ms = math.max(0, now - (began or now))
if first and began then
  local bound = "+Inf"
  for le in string.gmatch(ARGV[9], "%S+") do
    if ms <= tonumber(le) * 1000 then bound = le break end
  end
  redis.call("HINCRBY", KEYS[8], outcome .. " " .. bound, 1)
  redis.call("HINCRBY", KEYS[8], outcome .. " ms", ms)
end

if redis.call("HEXISTS", AGENTS, agent) == 0 then return out end
local failed = outcome ~= "completed" and outcome ~= "released" and 1 or 0
redis.call("HSET", NUMBERS, "idle", string.format("%.0f", now))
if outcome == "completed" then redis.call("HINCRBY", NUMBERS, "done", 1) end
if not first then failed = failed - 1 end -- it was counted as lost
if failed ~= 0 then redis.call("HINCRBY", NUMBERS, "failed", failed) end
if ARGV[6] ~= "" then redis.call("HSET", NUMBERS, "last_error", ARGV[6]) end
if not first then return out end
for name, n in pairs(usage) do
  n = string.format("%.0f", n)
  add(USAGE, name, n, ARGV[10])
  if name == "requests" or name == "tokens" then redis.call("HINCRBY", HOUR, agent .. " " .. name, n) end
end
redis.call("HINCRBY", HOUR, agent .. " assignments", 1)
redis.call("HINCRBY", HOUR, agent .. " failed", failed)
redis.call("HINCRBY", HOUR, agent .. " ms", ms)
redis.call("EXPIRE", HOUR, 25 * 3600)
return out
