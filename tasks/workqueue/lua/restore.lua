-- Adds items that are not in the queue yet, in the states that they once had.
-- KEYS: common.lua. ARGV: 1 to count by lane from the first item on or else 0,
-- 1 to keep endings or else 0, then per item id, spec, rank, state q|w|d|s|e, attempts, retried, ready at (unix
-- ms, of state w), since, max attempts (0 the queue's), lane, note, result given
-- 0|1, result.
-- Returns how many were new, or -2 if the queue is sealed.
if sealed then return -2 end
if ARGV[1] == "1" and not byLane and redis.call("EXISTS", REC) == 0 then
  -- A version that does not count by lane must not change such a queue.
  redis.call("HSET", META, "v", 2, "lanes", 1)
  byLane = "1"
end
if ARGV[2] == "1" then redis.call("HSET", META, "endings", 1) end
redis.call("HSETNX", META, "v", 1)
local counter = { q = "queued", w = "queued", d = "done", s = "skipped", e = "error" }
local added = 0
for at = 2, #ARGV - 1, 13 do
  local id = ARGV[at + 1]
  if redis.call("HEXISTS", REC, id) == 0 then
    local r = {
      state = ARGV[at + 4], attempts = tonumber(ARGV[at + 5]), retried = tonumber(ARGV[at + 6]), token = 0,
      rank = tonumber(ARGV[at + 3]), seq = nextSeq(), max = tonumber(ARGV[at + 9]), since = tonumber(ARGV[at + 8]), lane = ARGV[at + 10],
    }
    redis.call("HSET", SPEC, id, ARGV[at + 2])
    if r.state == "q" then
      makeReady(id, r, r.since)
    elseif r.state == "w" then
      redis.call("ZADD", DELAYED, ARGV[at + 7], id)
      freed = true -- the dispatcher must look again at another time
    elseif r.state == "e" then
      redis.call("ZADD", FAILED, string.format("%.0f", r.since), id)
    end
    save(id, r)
    if ARGV[at + 11] ~= "" then redis.call("HSET", NOTE, id, ARGV[at + 11]) end
    if ARGV[at + 12] == "1" then redis.call("HSET", RESULT, id, ARGV[at + 13]) end
    count(counter[r.state], 1, r.lane)
    added = added + 1
  end
end
finish(added)
return added
