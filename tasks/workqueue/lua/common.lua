-- Shared opening of every script of a queue.
--
-- KEYS, the same fifteen for each script (see keys.go for what they hold):
--   spec rec ready lanes delayed leased note result failed meta out pools reader refused ended
--
-- Every script fails with the error WQNEWER if a newer version of the program wrote the queue.
--
-- A record (hash rec) is "state attempts retried token rank seq max since lane", followed by the worker that holds the
-- lease, if there is one:
--   state     q ready, w waiting for its time, i in progress, d done, s skipped, e error
--   attempts  runs that failed since the last requeue
--   retried   how often the item was requeued from a terminal state
--   token     of its last lease; 0 if it has no valid one
--   rank      100 - priority
--   seq       its position among the ready items of its rank
--   max       its own limit of attempts, 0 for the queue's
--   since     unix ms at which it became ready for the last time (q, i), or at
--             which it came into its state (w, d, s, e)
--   lane      its resource keys, each followed by \31; \31 if there is none
-- The ready set orders its members by bytes: lane \0 rank seq \0 id. The lanes set scores each lane by its first
-- member, so that the oldest item of all lanes is found without reading the others.
local SPEC, REC, READY, LANES, DELAYED, LEASED, NOTE, RESULT, FAILED, META, OUT, POOLS, READER, REFUSED, ENDED = unpack(KEYS)

-- byLane: the queue counts by lane, too; sealed: no lease is valid, and nothing is leased and added; endings: the
-- queue keeps endings; noted: an item may have a note; keep: ms after which ended items are forgotten.
local version, byLane, sealed, endings, noted, paused, lastSeq, lastToken, moves, keep =
  unpack(redis.call("HMGET", META, "v", "lanes", "sealed", "endings", "noted", "paused", "seq", "token", "moves", "keep"))
if version and tonumber(version) > 2 then
  return redis.error_reply("WQNEWER the queue was written by a newer version")
end

-- number decodes a counter; a missing one is 0.
local function number(s) return tonumber(s or "0") end

local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

-- The changes of this script to each counter and to other fields of META, written once by finish. The counter of a lane
-- is the field name \0 lane.
local delta, laneDelta, metaChanges = {}, {}, {}
local wanted, totals = {}, {} -- counters of lanes that finish reads too; what the counters are that it has read or written
local places = { seq = number(lastSeq), token = number(lastToken) } -- the last ones taken
local freed = false
local function add(to, name, n) to[name] = (to[name] or 0) + n end

-- count counts items of a lane.
local function count(name, n, lane)
  add(delta, name, n)
  if byLane then add(laneDelta, name .. "\0" .. lane, n) end
end

-- addAll adds to counters, 1000 at a time at most, because unpack takes some thousands of values, and sets other fields.
local function addAll(fields, deltas, set)
  local old = #fields > 0 and redis.call("HMGET", META, unpack(fields))
  for i, field in ipairs(fields) do
    local n = number(old[i]) + deltas[i]
    totals[field] = n
    if deltas[i] ~= 0 then
      set[#set + 1] = field
      set[#set + 1] = string.format("%.0f", n)
    end
  end
  if #set > 0 then redis.call("HSET", META, unpack(set)) end
end

local function finish(moved)
  if moved > 0 then metaChanges.moves = string.format("%.0f", number(moves) + moved) end
  local set = {}
  for field, value in pairs(metaChanges) do
    set[#set + 1] = field
    set[#set + 1] = value
  end
  local fields, deltas = {}, {}
  for _, field in ipairs(wanted) do laneDelta[field] = laneDelta[field] or 0 end
  for _, changes in ipairs({ delta, laneDelta }) do
    for field, n in pairs(changes) do
      if n ~= 0 or laneDelta[field] then fields[#fields + 1], deltas[#fields + 1] = field, n end
      if #fields == 1000 then
        addAll(fields, deltas, set)
        fields, deltas, set = {}, {}, {}
      end
    end
  end
  addAll(fields, deltas, set)
  if freed then redis.call("PUBLISH", META, "ready") end
end

-- parse decodes a record; nil if it cannot be decoded.
local function parse(s)
  local state, attempts, retried, token, rank, seq, max, since, lane, worker =
    string.match(s, "^([qwidse]) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*\31)([^\31]*)$")
  if not state then return nil end
  return {
    state = state, attempts = tonumber(attempts), retried = tonumber(retried),
    token = tonumber(token), rank = tonumber(rank), seq = tonumber(seq),
    max = tonumber(max), since = tonumber(since), lane = lane, worker = worker,
  }
end

local function format(r)
  return string.format("%s %d %d %d %d %d %d %.0f %s%s",
    r.state, r.attempts, r.retried, r.token, r.rank, r.seq, r.max, r.since, r.lane, r.state == "i" and r.worker or "")
end

-- load returns the record of an item; nil if it has none, and also true if its record cannot be decoded.
local function load(id)
  local s = redis.call("HGET", REC, id)
  local r = s and parse(s)
  return r or nil, s and not r
end

-- setNote stores the note of an item; "" is none.
local function setNote(id, note)
  if note ~= "" then
    noted, metaChanges.noted = "1", "1"
    redis.call("HSET", NOTE, id, note)
  elseif noted then
    redis.call("HDEL", NOTE, id)
  end
end

local function save(id, r) redis.call("HSET", REC, id, format(r)) end

local function member(id, r)
  return r.lane .. "\0" .. string.format("%03d%013d", r.rank, r.seq) .. "\0" .. id
end

local function score(rank, seq) return rank * 8796093022208 + seq end

-- makeReady puts an item into its lane, since a moment (unix ms).
local function makeReady(id, r, since)
  r.state, r.since = "q", since
  redis.call("ZADD", READY, 0, member(id, r))
  local s = score(r.rank, r.seq)
  local head = redis.call("ZSCORE", LANES, r.lane)
  if not head or tonumber(head) > s then
    redis.call("ZADD", LANES, string.format("%.0f", s), r.lane)
  end
  freed = true
end

-- ending adds the outcome of an item to the outputs, if the queue keeps endings.
local function ending(id, r, note)
  if endings then redis.call("XADD", OUT, "*", "id", id, "state", r.state, "lane", r.lane, "note", note) end
end

-- placeIn returns the score of a ready member of a lane.
local function placeIn(lane, member)
  local at = #lane + 2
  return score(tonumber(string.sub(member, at, at + 2)), tonumber(string.sub(member, at + 3, at + 15)))
end

-- fixLane sets a lane's score after members were taken from it.
local function fixLane(lane)
  local head = redis.call("ZRANGEBYLEX", READY, "[" .. lane .. "\0", "(" .. lane .. "\1", "LIMIT", 0, 1)[1]
  if head then
    redis.call("ZADD", LANES, string.format("%.0f", placeIn(lane, head)), lane)
  else
    redis.call("ZREM", LANES, lane)
  end
end

-- take reserves n places ("seq") or tokens ("token"), and returns the last one.
local function take(name, n)
  places[name] = places[name] + n
  metaChanges[name] = string.format("%.0f", places[name])
  return places[name]
end

local function nextSeq() return take("seq", 1) end

-- expired counts leases that ended because they were not extended.
local function expired(n) add(delta, "expired", n) end

-- counterOf is the counter of each state.
local counterOf = { q = "queued", w = "queued", i = "in_progress", d = "done", s = "skipped", e = "error" }

-- leave removes an item that is leased or has ended from its state.
local function leave(id, r)
  if r.state == "i" then redis.call("ZREM", LEASED, id) elseif r.state == "e" then redis.call("ZREM", FAILED, id) end
  if r.state ~= "i" then redis.call("ZREM", ENDED, id) end
  count(counterOf[r.state], -1, r.lane)
end

-- hasEnded reports whether an item is in a terminal state.
local function hasEnded(r) return r ~= nil and string.find("dse", r.state, 1, true) ~= nil end

-- drop removes an item that has ended.
local function drop(id, r)
  for _, key in ipairs({ SPEC, REC, NOTE, RESULT }) do redis.call("HDEL", key, id) end
  leave(id, r)
end

-- forgetOld removes up to 100 items that ended longer ago than the queue keeps them. It returns how many.
local function forgetOld()
  if not keep then return 0 end
  local old = redis.call("ZRANGEBYSCORE", ENDED, "-inf", now - tonumber(keep), "LIMIT", 0, 100)
  for _, id in ipairs(old) do
    local r = load(id)
    if hasEnded(r) then drop(id, r) else redis.call("ZREM", ENDED, id) end
  end
  return #old
end

-- enter queues an item after the others of its rank, or delays it until due (unix ms), and stores it.
local function enter(id, r, due)
  count("queued", 1, r.lane)
  if due > now then
    r.state, r.since = "w", now
    redis.call("ZADD", DELAYED, due, id)
    freed = true -- the dispatcher must look again at another time
  else
    r.seq = nextSeq()
    makeReady(id, r, now)
  end
  save(id, r)
end

-- putBack returns a leased item to its place, without counting an attempt.
local function putBack(id, r)
  leave(id, r)
  count("queued", 1, r.lane)
  makeReady(id, r, r.since)
  save(id, r)
end

-- conclude stores the terminal state of an item.
local function conclude(id, r, state, note)
  r.state, r.since = state, now
  count(counterOf[state], 1, r.lane)
  if keep then redis.call("ZADD", ENDED, now, id) end
  if state == "e" then
    redis.call("ZADD", FAILED, now, id)
    ending(id, r, note)
  end
  save(id, r)
end

-- damaged ends an item of a lane in error because its record cannot be decoded. counter: the counter that has it.
local function damaged(id, counter, lane)
  local note = "cannot decode the item record '" .. redis.call("HGET", REC, id) .. "' of key " .. REC
  local r = { attempts = 0, retried = 0, token = 0, rank = 100, seq = 0, max = 0, lane = lane }
  count(counter, -1, lane)
  setNote(id, note)
  conclude(id, r, "e", note)
end

local NO_KEYS = "\31" -- the lane of a damaged item that has left its lane

-- loadLeased returns the record of an entry of LEASED. If the item is not in progress, it removes the entry and returns nil.
local function loadLeased(id)
  local r, bad = load(id)
  if r and r.state == "i" then return r end
  redis.call("ZREM", LEASED, id)
  if bad then damaged(id, "in_progress", NO_KEYS) end
  return nil
end

-- become queues an item as another one of the same id, from ARGV[at]: spec, rank, ms until it is ready, max attempts (0 the
-- queue's), lane.
local function become(id, r, at)
  leave(id, r)
  r.attempts, r.token, r.rank, r.max, r.lane = 0, 0, tonumber(ARGV[at + 1]), tonumber(ARGV[at + 3]), ARGV[at + 4]
  redis.call("HSET", SPEC, id, ARGV[at])
  setNote(id, "")
  redis.call("HDEL", RESULT, id)
  enter(id, r, now + tonumber(ARGV[at + 2]))
  finish(1)
end

-- fail ends a lease because the run failed. A counted failure that uses up the attempts ends
-- the item; otherwise it is queued again, immediately or when due.
local function fail(id, r, note, counted, limit, due)
  leave(id, r)
  setNote(id, note)
  if r.max > 0 then limit = r.max end
  if counted then r.attempts = r.attempts + 1 end
  if counted and r.attempts >= limit then conclude(id, r, "e", note) else enter(id, r, due) end
end

-- nextDue returns the unix ms at which the first waiting item or lease comes due, math.huge if there is none.
local function nextDue()
  local first = math.huge
  for _, key in ipairs({ DELAYED, LEASED }) do
    first = math.min(first, tonumber(redis.call("ZRANGE", key, 0, 0, "WITHSCORES")[2]) or math.huge)
  end
  return first
end

local due -- what nextDue returned, while it holds

-- wakeUp returns expired leases to the queue, counted as attempts, and moves
-- waiting items that are due to their lanes. It returns how many.
local function wakeUp(limit)
  due = nextDue()
  if due > now then return 0 end
  due = nil
  local late = redis.call("ZRANGEBYSCORE", LEASED, "-inf", now, "LIMIT", 0, 500)
  for _, id in ipairs(late) do
    local r = loadLeased(id)
    if r then fail(id, r, "lease expired", true, limit, 0) end
  end
  expired(#late)
  local waiting = redis.call("ZRANGEBYSCORE", DELAYED, "-inf", now, "LIMIT", 0, 500)
  for _, id in ipairs(waiting) do
    local r, bad = load(id)
    if bad then damaged(id, "queued", NO_KEYS) end
    if r and r.state == "w" then
      r.seq = nextSeq()
      makeReady(id, r, now)
      save(id, r)
    end
  end
  if #waiting > 0 then redis.call("ZREM", DELAYED, unpack(waiting)) end
  return #late + #waiting
end

-- expireAll ends the leases of dead workers, named by the keys of a table, as
-- if they had expired. It returns how many.
local function expireAll(dead, limit, note)
  local moved, offset = 0, 0
  while true do
    local ids = redis.call("ZRANGE", LEASED, offset, offset + 499)
    if #ids == 0 then break end
    for _, id in ipairs(ids) do
      local r = loadLeased(id)
      if r and not dead[r.worker] then
        offset = offset + 1
      else
        if r then fail(id, r, note, true, limit, 0) end
        moved = moved + 1
      end
    end
  end
  expired(moved)
  return moved
end

-- untilNext returns the milliseconds until a waiting item or a lease comes
-- due, -1 if there is none. Leases that this script has taken expire at taken.
local function untilNext(taken)
  local first = math.min(due or nextDue(), taken or math.huge)
  return first < math.huge and math.max(0, first - now) or -1
end

-- lease leases ids, whose records are given, to a worker and returns
-- {id, token, attempts, retried, ms it was ready, spec} of each, one after the
-- other.
local function lease(ids, records, worker, ttl)
  local out = {}
  if #ids == 0 then return out end
  local token = take("token", #ids) - #ids
  local recs, leased = {}, {}
  for i, id in ipairs(ids) do
    local r = records[i]
    r.state, r.token, r.worker = "i", token + i, worker
    recs[2 * i - 1], recs[2 * i] = id, format(r)
    leased[2 * i - 1], leased[2 * i] = now + ttl, id
  end
  redis.call("HSET", REC, unpack(recs))
  redis.call("ZADD", LEASED, unpack(leased))
  local specs = redis.call("HMGET", SPEC, unpack(ids))
  for i, id in ipairs(ids) do
    local r = records[i]
    local at = 6 * (i - 1)
    out[at + 1], out[at + 2], out[at + 3], out[at + 4], out[at + 5], out[at + 6] =
      id, r.token, r.attempts, r.retried, math.max(0, now - r.since), specs[i] or ""
    count("queued", -1, r.lane)
    count("in_progress", 1, r.lane)
  end
  return out
end

local REFUSED_MOST = 10000 -- ids that REFUSED holds

-- insert adds n items that are not in the queue yet, from the arguments after ARGV[at]: id, spec, rank, ms until it is
-- ready or -1 if it is done, max attempts (0 the queue's), lane, result of one that is done. At most 500 items, because unpack takes some thousands of values. The
-- queue holds at most `most` items (0: no limit); the ids of others are added to REFUSED. It returns how many were new.
local function insert(at, n, most)
  if n == 0 then return 0 end
  local ids = {}
  for i = 0, n - 1 do ids[i + 1] = ARGV[at + 7 * i + 1] end
  local known = redis.call("HMGET", REC, unpack(ids))
  local room = most > 0 and most - redis.call("HLEN", REC) or n
  local seq = take("seq", n) - n
  local specs, recs, ready, delayed, heads, seen, refused = {}, {}, {}, {}, {}, {}, {}
  for i = 0, n - 1 do
    local from = at + 7 * i
    local id = ids[i + 1]
    if known[i + 1] or seen[id] then
      seen[id] = true
    elseif room <= 0 then
      refused[#refused + 1] = id
    else
      seen[id] = true
      room = room - 1
      local delay = tonumber(ARGV[from + 4])
      local r = {
        state = "q", attempts = 0, retried = 0, token = 0, rank = tonumber(ARGV[from + 3]),
        seq = seq + i + 1, max = tonumber(ARGV[from + 5]), since = now, lane = ARGV[from + 6],
      }
      if delay < 0 then
        r.state = "d"
        redis.call("HSET", RESULT, id, ARGV[from + 7])
        if keep then redis.call("ZADD", ENDED, now, id) end
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
      specs[#specs + 1] = ARGV[from + 2]
      if delay >= 0 then count("queued", 1, r.lane) end
      recs[#recs + 1] = id
      recs[#recs + 1] = format(r)
    end
  end
  if #refused > 0 and redis.call("SCARD", REFUSED) < REFUSED_MOST then redis.call("SADD", REFUSED, unpack(refused)) end
  local added = #specs / 2
  if added == 0 then return 0 end
  if redis.call("HSETNX", META, "v", 2) == 1 or not version then
    redis.call("PERSIST", META)
    redis.call("PERSIST", POOLS)
  end
  redis.call("HSET", SPEC, unpack(specs))
  redis.call("HSET", REC, unpack(recs))
  if #delayed > 0 then redis.call("ZADD", DELAYED, unpack(delayed)) end
  if #ready > 0 then redis.call("ZADD", READY, unpack(ready)) end
  for lane, s in pairs(heads) do
    local head = redis.call("ZSCORE", LANES, lane)
    if not head or tonumber(head) > s then redis.call("ZADD", LANES, string.format("%.0f", s), lane) end
  end
  freed = true
  return added
end
