-- Prefix of all scripts of jobs. In scripts that name it in KEYS, KEYS[1] is the record of the job, and KEYS[2] to KEYS[4] are
-- keys of events: the streams of all jobs and of this one, and a key of webhooks. The function record is of package event.
local RECORD, EVENTS, EVENTS_OF_JOB, WEBHOOKS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- clock sets the time. Scripts that need it, or add events, call it first.
local time, now, stamp
local function clock()
  time = redis.call("TIME")
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  stamp = string.format("%.0f", now)
end

local function emit(type, job, data) return record(EVENTS, EVENTS_OF_JOB, WEBHOOKS, type, job, stamp, data) end

-- rank returns the place of a job in the ready lists, or nil if it has no work to give: the time of its last turn, or of its
-- creation, minus a minute for each point of priority. It also returns the fields that ARGV names from the second on.
local function rank(key, turn)
  local r = redis.call("HMGET", key, "created", "turn", "priority", "status", "paused", unpack(turn and ARGV or {}, 2))
  if r[4] ~= "processing" or r[5] then return nil end
  return string.format("%.3f", tonumber(turn or r[2] or r[1]) - 60000 * tonumber(r[3] or 0)), r
end

-- wakeOne wakes one of the processes that wait for work at a list.
local function wakeOne(list)
  if redis.call("EXISTS", list) == 1 then return end
  redis.call("LPUSH", list, 1)
  redis.call("EXPIRE", list, 3600)
end

-- tally replaces the contribution of a job to the counters of all jobs; "" removes it. The items are
-- "state=number", with spaces between.
local function tally(counters, record, items)
  local delta = {}
  for state, n in string.gmatch(items, "(%a+)=(%d+)") do delta[state] = tonumber(n) end
  for state, n in string.gmatch(redis.call("HGET", record, "counted") or "", "(%a+)=(%d+)") do
    delta[state] = (delta[state] or 0) - tonumber(n)
  end
  for state, n in pairs(delta) do
    if n ~= 0 then redis.call("HINCRBY", counters, state, n) end
  end
  redis.call("HSET", record, "counted", items)
end

-- day adds an event of a job to the counters of today.
local function day(key, what)
  redis.call("HINCRBY", key, what, 1)
  redis.call("EXPIRE", key, 40 * 86400)
end
