-- Leases those of the given items that are available now.
-- KEYS: common.lua. ARGV: worker, ttl ms, attempt limit, then ids.
-- Returns {paused or sealed 0|1, ms until to call again or -1, how many of them are not
-- terminal, ms by which the clock was set back, then per leased item id, token, attempts, retried, ms it
-- was ready, spec}.
local worker, ttl, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local paused = (sealed or redis.call("HGET", META, "paused")) and 1 or 0
local due, remaining, moved = -1, 0, 0
local back, unbounded = setBack(ttl)
local ids, records, lanes, seen = {}, {}, {}, {}
-- The worker that holds an item may settle or return it at any time.
local LOOK = 2000

local function wait(at)
  local ms = math.max(0, at - now)
  if due < 0 or ms < due then due = ms end
end

for i = 4, #ARGV do
  local id = ARGV[i]
  local r = not seen[id] and load(id)
  seen[id] = true
  if r then
    local lease = r.state == "i" and tonumber(redis.call("ZSCORE", LEASED, id))
    if lease and lease <= now and not sealed then
      fail(id, r, "lease expired", true, limit, 0)
      expired(1)
      moved = moved + 1
    elseif lease then
      wait(math.min(lease, now + LOOK))
    end
    local at = r.state == "w" and tonumber(redis.call("ZSCORE", DELAYED, id))
    if at and at > now then
      wait(at)
    elseif paused == 0 and (r.state == "q" or at) then
      if at then
        redis.call("ZREM", DELAYED, id)
        r.since = at
      else
        redis.call("ZREM", READY, member(id, r))
        lanes[r.lane] = true
      end
      ids[#ids + 1], records[#records + 1] = id, r
    end
    if r.state ~= "d" and r.state ~= "s" and r.state ~= "e" then remaining = remaining + 1 end
  end
end
for lane in pairs(lanes) do fixLane(lane) end
local got = lease(ids, records, worker, ttl)
finish(moved + #ids)
local out = { paused, unbounded and 0 or due, remaining, back }
for i = 1, #got do out[4 + i] = got[i] end
return out
