-- Corrects the indexes from the records of items.
-- KEYS: common.lua. ARGV: ids.
-- Returns how many items were not indexed correctly.
local fixed = 0
for _, id in ipairs(ARGV) do
  local r = load(id)
  if r then
    local wrong = 0
    if r.damaged then
      wrong = 1
      save(id, r)
      redis.call("HSET", NOTE, id, "its record in Redis was damaged")
    end
    local function out(key, what) wrong = wrong + redis.call("ZREM", key, what) end
    if r.state ~= "q" then out(READY, member(id, r)) end
    if r.state ~= "w" then out(DELAYED, id) end
    if r.state ~= "i" then out(LEASED, id) end
    if r.state ~= "e" then out(FAILED, id) end
    if r.state == "q" and not redis.call("ZSCORE", READY, member(id, r)) then
      wrong = 1
      makeReady(id, r, r.since)
    elseif r.state == "w" and not redis.call("ZSCORE", DELAYED, id) then
      wrong = 1
      r.seq = nextSeq()
      makeReady(id, r, now)
      save(id, r)
    elseif r.state == "i" and not redis.call("ZSCORE", LEASED, id) then
      wrong = 1
      redis.call("ZADD", LEASED, now, id) -- it has expired
    elseif r.state == "e" and not redis.call("ZSCORE", FAILED, id) then
      wrong = 1
      redis.call("ZADD", FAILED, now, id)
    end
    if wrong > 0 then
      fixed = fixed + 1
      fixLane(r.lane)
    end
  end
end
finish(fixed)
return fixed
