-- record adds an event to the stream of all events and, unless of_job is nil, to the stream of its job. It returns the id of the
-- event. About 10,000 events in total and 1,000 per job are kept. While webhooks exist, their relay trims the stream of all
-- events, because it may have fallen back.
local function record(events, of_job, relayed, type, job, at, data)
  local most = redis.call("EXISTS", relayed) == 1 and 1000000 or 10000
  local id = redis.call("XADD", events, "MAXLEN", "~", most, "*", "type", type, "job", job, "at", at, "data", data)
  if of_job then
    -- The last id in the stream of the job is lower, unless an operator has edited the stream.
    redis.call("XADD", of_job, "MAXLEN", "~", 1000, id, "type", type, "job", job, "at", at, "data", data)
  end
  return id
end
