-- Ends an assignment, takes it off its agent, and counts it. What is left of the
-- record answers repeated calls. An outcome replaces the outcome "lost", which a
-- call that came second may have stored first; the work of that one stays, so
-- that the call that came first can be repeated.
-- KEYS: record of the assignment, due, held by the agent, agents, numbers of the
-- agent, usage of the agent, used by the job, stale, took, hour.
-- ARGV: id, agent, outcome, ms to keep the record, error or "", most names of
-- the agent's usage, a random text for each call, job, most fields that the job
-- has used, bounds of took in seconds, hash of the answer or "", then names and
-- values of usage.
-- Returns {1 if this call ended it, 2 if it replaced the outcome, 0 if neither,
-- then the fields and totals of what the job has used that have changed}.
local RECORD, AGENTS, NUMBERS, USAGE, USED, HOUR = KEYS[1], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[10]
local id, agent, outcome = ARGV[1], ARGV[2], ARGV[3]
local at = redis.call("HMGET", RECORD, "state", "outcome", "call", "answer", "at")
if at[3] == ARGV[7] then return { tonumber(at[4]) } end -- the client has sent it again
redis.call("ZREM", KEYS[2], id)
redis.call("ZREM", KEYS[3], id)
if not at[1] or (at[1] ~= "open" and (at[2] ~= "lost" or outcome == "lost")) then return { 0 } end
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local answer = at[1] == "open" and 1 or 2
redis.call("HSET", RECORD, "state", "closed", "outcome", outcome, "call", ARGV[7], "answer", answer, "digest", ARGV[11])
redis.call("HDEL", RECORD, "usage")
if outcome ~= "lost" then redis.call("HDEL", RECORD, "work") end
redis.call("PEXPIRE", RECORD, ARGV[4])

-- add adds to a field of a hash with at most so many; a total that is too large stays.
local function add(key, field, n, most)
  if redis.call("HEXISTS", key, field) == 1 or redis.call("HLEN", key) < tonumber(most) then
    redis.pcall("HINCRBY", key, field, n)
  end
end

local out = { answer }
local function used(name, n)
  local field = agent .. " " .. name
  add(USED, field, n, ARGV[9])
  local total = redis.call("HGET", USED, field)
  if total then
    out[#out + 1] = field
    out[#out + 1] = total
  end
end
if outcome == "completed" then used("items", 1) end
if answer == 1 then
  for i = 12, #ARGV, 2 do used(ARGV[i], ARGV[i + 1]) end
end
if #out > 1 then
  redis.call("EXPIRE", USED, 30 * 86400)
  redis.call("ZADD", KEYS[8], now, ARGV[8])
end

local function count(key, field, n) redis.call("HINCRBY", key, field, n) end

local ms = math.max(0, now - (tonumber(at[5] or "") or now))
if answer == 1 then
  local bound = "+Inf"
  for le in string.gmatch(ARGV[10], "%S+") do
    if ms <= tonumber(le) * 1000 then bound = le break end
  end
  count(KEYS[9], outcome .. " " .. bound, 1)
  count(KEYS[9], outcome .. " ms", ms)
end

if redis.call("HEXISTS", AGENTS, agent) == 0 then return out end
redis.call("HSET", NUMBERS, "idle", string.format("%.0f", now))
if outcome == "completed" then count(NUMBERS, "done", 1) end
local failed = outcome ~= "completed" and outcome ~= "released" and 1 or 0
if answer == 2 then failed = -1 end
if failed ~= 0 then count(NUMBERS, "failed", failed) end
if ARGV[5] ~= "" then redis.call("HSET", NUMBERS, "last_error", ARGV[5]) end
if answer == 2 then return out end
for i = 12, #ARGV, 2 do
  add(USAGE, ARGV[i], ARGV[i + 1], ARGV[6])
  if ARGV[i] == "requests" or ARGV[i] == "tokens" then
    count(HOUR, agent .. " " .. ARGV[i], ARGV[i + 1])
  end
end
count(HOUR, agent .. " assignments", 1)
count(HOUR, agent .. " failed", failed)
count(HOUR, agent .. " ms", ms)
redis.call("EXPIRE", HOUR, 25 * 3600)
return out
