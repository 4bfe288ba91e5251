-- record adds an event to the stream of all, to that of its job unless the key of that is nil, and, while there is an
-- outbox, to the outbox. It returns the id of the event.
-- Some 10,000 events of all jobs are kept, and some 1,000 of each.
local function record(events, of_job, outbox, type, job, at, data)
  local id = redis.call("XADD", events, "MAXLEN", "~", 10000, "*", "type", type, "job", job, "at", at, "data", data)
  if of_job then
    -- The stream of the job ends with an earlier id, unless it was written by hand.
    redis.call("XADD", of_job, "MAXLEN", "~", 1000, id, "type", type, "job", job, "at", at, "data", data)
  end
  -- An outbox of another type must not stop what the event tells of; who passes on its entries says so.
  if redis.call("TYPE", outbox).ok == "stream" then
    redis.call("XADD", outbox, "MAXLEN", "~", 1000000, "*", "id", id, "type", type, "job", job, "at", at, "data", data)
  end
  return id
end
