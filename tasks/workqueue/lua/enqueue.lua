-- Adds the items that are not in the queue yet; leaves the others as they are.
-- KEYS: common.lua. ARGV: id and token of a lease without which nothing is added
-- ("" if there is none), 1 to count by lane from the first item on or else 0, 1 to
-- keep endings or else 0, then per item id, spec, rank, ms until it is ready or
-- -1 if it is done, max attempts (0 the queue's), lane, result of one that is done.
-- At most 500 items, because unpack takes some thousands of values.
-- Returns how many were new, -1 if the lease was lost, -2 if the queue
-- is sealed.
if sealed then return -2 end
if ARGV[1] ~= "" then
  local holder = load(ARGV[1])
  if not holder or holder.state ~= "i" or holder.token ~= tonumber(ARGV[2]) then return -1 end
end
if ARGV[3] == "1" and not byLane and redis.call("EXISTS", REC) == 0 then
  -- A version that does not count by lane must not change such a queue.
  redis.call("HSET", META, "v", 2, "lanes", 1)
  byLane = "1"
end
if ARGV[4] == "1" and not endings then redis.call("HSET", META, "endings", 1) end
local HEAD = 4
local n = (#ARGV - HEAD) / 7
local ids = {}
for i = 0, n - 1 do ids[i + 1] = ARGV[HEAD + 7 * i + 1] end
local known = redis.call("HMGET", REC, unpack(ids))

local seq = take("seq", n) - n
local specs, recs, ready, delayed, heads, seen = {}, {}, {}, {}, {}, {}
for i = 0, n - 1 do
  local at = HEAD + 7 * i
  local id = ARGV[at + 1]
  if not known[i + 1] and not seen[id] then
    seen[id] = true
    local delay = tonumber(ARGV[at + 4])
    local r = {
      state = "q", attempts = 0, retried = 0, token = 0, rank = tonumber(ARGV[at + 3]),
      seq = seq + i + 1, max = tonumber(ARGV[at + 5]), since = now, lane = ARGV[at + 6],
    }
    if delay < 0 then
      r.state = "d"
      redis.call("HSET", RESULT, id, ARGV[at + 7])
      count("done", 1, r.lane)
    elseif delay > 0 then
      r.state = "w"
      delayed[#delayed + 1] = now + delay
      delayed[#delayed + 1] = id
    else
      ready[#ready + 1] = 0
      ready[#ready + 1] = member(id, r)
      local s = score(r.rank, r.seq)
      if not heads[r.lane] or s < heads[r.lane] then heads[r.lane] = s end
    end
    specs[#specs + 1] = id
    specs[#specs + 1] = ARGV[at + 2]
    if delay >= 0 then count("queued", 1, r.lane) end
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
end
finish(added)
return added
