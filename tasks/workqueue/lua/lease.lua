-- Leases up to n ready items, oldest first within a priority, passing over
-- those whose resource keys have no budget left.
-- KEYS: common.lua. ARGV: worker, n, ttl ms, attempt limit, budget of a key
-- that is not named (-1 unlimited), most items in progress of all workers (0: no
-- limit), how many the worker may hold beyond the limit while no other worker
-- holds any, number of ids whose leases the worker holds or has just ended, these
-- ids, then per named key: key, budget.
-- Returns {paused or sealed 0|1, ms until more is due or -1, passed over 0|1,
-- items that other workers hold, items whose last attempt has expired, then per item id,
-- token, attempts, retried, ms it was ready, spec}.
if sealed then return { 1, -1, 0, 0, 0 } end
if not version then return { 0, -1, 0, 0, 0 } end -- the queue has had no items, or was deleted: it gets no metadata
local worker, n, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local moved = wakeUp(tonumber(ARGV[4])) + forgetOld()
local exhausted = delta.error or 0
local most, ahead, own = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local held, others = 0, 0
if most > 0 then
  for i = 9, 8 + own do
    if redis.call("ZSCORE", LEASED, ARGV[i]) then held = held + 1 end
  end
  others = math.max(0, redis.call("ZCARD", LEASED) - held)
end
if paused then
  finish(moved)
  return { 1, untilNext(), 0, others, exhausted }
end
if most > 0 then n = math.max(0, math.min(n, most - others - held + (others == 0 and ahead or 0))) end
local other = tonumber(ARGV[5])
local budget = {}
for i = 9 + own, #ARGV, 2 do budget[ARGV[i]] = tonumber(ARGV[i + 1]) end

local function left(keys)
  for _, key in ipairs(keys) do
    if (budget[key] or other) == 0 then return false end
  end
  return true
end

-- A merge over the lanes, each opened when its head is the smallest of all.
local opened, ids, members, records, taken = {}, {}, {}, {}, {}
local offset, page, pos, passed = 0, {}, 1, 0

local function nextLane()
  if pos > #page and (offset == 0 or #page == 200) then
    page = redis.call("ZRANGE", LANES, offset, offset + 99, "WITHSCORES")
    offset = offset + 100
    pos = 1
  end
  return page[pos], tonumber(page[pos + 1])
end

local function refill(l)
  l.most = math.min(n - #ids, 64) + 1 -- and the head that the lane has then
  l.members = redis.call("ZRANGEBYLEX", READY, l.from, "(" .. l.name .. "\1", "LIMIT", 0, l.most)
  l.at = 1
end

local function head(l)
  if l.at > #l.members then
    if #l.members == 0 then return nil end
    refill(l)
    if #l.members == 0 then return nil end
  end
  return placeIn(l.name, l.members[l.at])
end

while #ids < n do
  local best, bestScore
  for i = #opened, 1, -1 do
    local l = opened[i]
    local s = left(l.keys) and head(l) or nil
    if not s then
      if #l.members >= l.at then passed = 1 end
      table.remove(opened, i)
    elseif not bestScore or s < bestScore then
      best, bestScore = l, s
    end
  end
  local name, s = nextLane()
  if name and (not bestScore or s < bestScore) then
    pos = pos + 2
    local keys = {}
    for key in string.gmatch(name, "([^\31]+)") do keys[#keys + 1] = key end
    if left(keys) then
      local l = { name = name, keys = keys, from = "[" .. name .. "\0" }
      refill(l)
      opened[#opened + 1] = l
    else
      passed = 1
    end
  elseif best then
    local m = best.members[best.at]
    best.at = best.at + 1
    best.from = "(" .. m
    taken[best.name] = taken[best.name] or { lane = best }
    table.insert(taken[best.name], m)
    ids[#ids + 1], members[#ids + 1] = string.sub(m, #best.name + 19), m
    for _, key in ipairs(best.keys) do
      local b = budget[key] or other
      if b > 0 then budget[key] = b - 1 end
    end
  else
    break
  end
end

local asked = #ids
if asked > 0 then
  local recs = redis.call("HMGET", REC, unpack(ids))
  local good = {}
  for i, s in ipairs(recs) do
    local r = s and parse(s)
    if s and not r then damaged(ids[i], "queued", string.sub(members[i], 1, #members[i] - #ids[i] - 18)) end
    if r and r.state == "q" and member(ids[i], r) == members[i] then -- or else it is ready elsewhere, or not at all
      good[#good + 1], records[#records + 1] = ids[i], r
    end
  end
  ids = good
  for lane, all in pairs(taken) do
    redis.call("ZREM", READY, unpack(all))
    local l = all.lane
    if l.members[l.at] then
      redis.call("ZADD", LANES, string.format("%.0f", placeIn(lane, l.members[l.at])), lane)
    elseif #l.members < l.most then
      redis.call("ZREM", LANES, lane)
    else
      fixLane(lane)
    end
  end
end
freed = false
local got = lease(ids, records, worker, ttl)
finish(moved + #ids)
local out = { 0, #ids < asked and 0 or untilNext(#ids > 0 and now + ttl or nil), passed, others, exhausted } -- others may be ready in place of the others
for i = 1, #got do out[5 + i] = got[i] end
return out
