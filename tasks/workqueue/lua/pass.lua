-- Gives up a lease and makes its item ready as another one of the same id.
-- KEYS: common.lua. ARGV: id, token, spec, rank, ms until it is ready, max
-- attempts (0 the queue's), lane.
-- Returns 1 passed (also if it was before, by this lease), 0 lost, -1 no such
-- item.
local id, token, delay = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[5])
local r = load(id)
if not r then return -1 end
if r.token ~= token or r.state ~= "i" then
  local by = string.match(redis.call("HGET", SPEC, id) or "", '^{"passed":(%d+)')
  return tonumber(by) == token and 1 or 0
end
if sealed then return 0 end
drop(id, r)
r.attempts, r.token, r.rank, r.max, r.lane = 0, 0, tonumber(ARGV[4]), tonumber(ARGV[6]), ARGV[7]
count("queued", 1, r.lane)
if delay > 0 then
  r.state, r.since = "w", now
  redis.call("ZADD", DELAYED, now + delay, id)
  freed = true -- the dispatcher must look again at another time
else
  r.seq = nextSeq()
  makeReady(id, r, now)
end
save(id, r)
redis.call("HSET", SPEC, id, ARGV[3])
redis.call("HDEL", NOTE, id)
redis.call("HDEL", RESULT, id)
finish(1)
return 1
