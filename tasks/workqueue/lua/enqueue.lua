-- Adds the items that are not in the queue yet; leaves the others as they are.
-- KEYS: common.lua. ARGV: per item id, spec, rank, ready at (unix ms; 0 now),
-- max attempts (0 the queue's), lane.
-- At most 500 items, because unpack takes some thousands of values.
-- Returns how many were new.
local n = #ARGV / 6
local ids = {}
for i = 0, n - 1 do ids[i + 1] = ARGV[6 * i + 1] end
local known = redis.call("HMGET", REC, unpack(ids))

local seq = redis.call("HINCRBY", META, "seq", n) - n
local specs, recs, ready, delayed, heads, seen = {}, {}, {}, {}, {}, {}
for i = 0, n - 1 do
  local at = 6 * i
  local id = ARGV[at + 1]
  if not known[i + 1] and not seen[id] then
    seen[id] = true
    local due = tonumber(ARGV[at + 4])
    local r = {
      state = "q", attempts = 0, retried = 0, token = 0, rank = tonumber(ARGV[at + 3]),
      seq = seq + i + 1, max = tonumber(ARGV[at + 5]), since = now, lane = ARGV[at + 6],
    }
    if due > now then
      r.state = "w"
      delayed[#delayed + 1] = due
      delayed[#delayed + 1] = id
    else
      ready[#ready + 1] = 0
      ready[#ready + 1] = member(id, r)
      local s = score(r.rank, r.seq)
      if not heads[r.lane] or s < heads[r.lane] then heads[r.lane] = s end
    end
    specs[#specs + 1] = id
    specs[#specs + 1] = ARGV[at + 2]
    recs[#recs + 1] = id
    recs[#recs + 1] = format(r)
  end
end

local added = #specs / 2
if added > 0 then
  redis.call("HSETNX", META, "v", 1)
  redis.call("HSET", SPEC, unpack(specs))
  redis.call("HSET", REC, unpack(recs))
  if #delayed > 0 then redis.call("ZADD", DELAYED, unpack(delayed)) end
  if #ready > 0 then redis.call("ZADD", READY, unpack(ready)) end
  for lane, s in pairs(heads) do
    local head = redis.call("ZSCORE", LANES, lane)
    if not head or tonumber(head) > s then
      redis.call("ZADD", LANES, string.format("%.0f", s), lane)
    end
  end
  freed = true
  count("queued", added)
end
finish(added)
return added
