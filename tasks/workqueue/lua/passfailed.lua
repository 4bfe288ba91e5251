-- Makes an item in state error ready as another one of the same id.
-- KEYS: common.lua. ARGV: id, spec, rank, ms until it is ready, max attempts (0 the queue's), lane, data of the ending.
-- Returns "ok", "sealed", or the state letter of the item, "" if there is none.
local id, delay = ARGV[1], tonumber(ARGV[4])
local r = load(id)
if not r then return "" end
if r.state ~= "e" then return r.state end
if sealed then return "sealed" end
count("error", -1, r.lane)
if endings then redis.call("XADD", OUT, "*", "id", id, "state", "d", "lane", r.lane, "note", "", "data", ARGV[7]) end
r.attempts, r.token, r.rank, r.max, r.lane = 0, 0, tonumber(ARGV[3]), tonumber(ARGV[5]), ARGV[6]
count("queued", 1, r.lane)
if delay > 0 then
  r.state, r.since = "w", now
  redis.call("ZADD", DELAYED, now + delay, id)
  freed = true
else
  r.seq = nextSeq()
  makeReady(id, r, now)
end
save(id, r)
redis.call("ZREM", FAILED, id)
redis.call("HSET", SPEC, id, ARGV[2])
redis.call("HDEL", NOTE, id)
redis.call("HDEL", RESULT, id)
finish(1)
return "ok"
