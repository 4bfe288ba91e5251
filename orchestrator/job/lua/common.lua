-- Shared opening of the scripts of jobs. In those that say so, KEYS[1] is the record of the job, KEYS[2] and KEYS[3] are
-- the streams of events: of all jobs, and of this one.
local RECORD, EVENTS, EVENTS_OF_JOB = KEYS[1], KEYS[2], KEYS[3]

local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local stamp = string.format("%.0f", now)

-- Some 10,000 events of all jobs are kept, and some 1,000 of each.
local function emit(type, job, data)
  local id = redis.call("XADD", EVENTS, "MAXLEN", "~", 10000, "*", "type", type, "job", job, "at", stamp, "data", data)
  -- The stream of the job ends with an earlier id, unless it was written by hand.
  redis.call("XADD", EVENTS_OF_JOB, "MAXLEN", "~", 1000, id, "type", type, "job", job, "at", stamp, "data", data)
  return id
end

-- day counts what happened to a job today.
local function day(key, what)
  redis.call("HINCRBY", key, what, 1)
  redis.call("EXPIRE", key, 40 * 86400)
end
