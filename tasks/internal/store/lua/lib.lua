-- Shared by the scripts that change workflows; put in front of each of them.
-- KEYS[1] agenda, KEYS[2] running, KEYS[3..] workflow hashes, one for each item
-- ARGV[1] number of items, then per item: number of its arguments, and those. The first five of an item
-- are workflow id, created (unix ms), root node, retention (ms) and channel that tells the end
-- returns per item what the script says of it, or {'error', message}; an error of the first item is one
-- of the script
local agenda, running = KEYS[1], KEYS[2]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local GRACE = 2000 -- ms until someone else looks after what was released and not handed over

-- Redis writes a number with 17 digits and their rounding: what it is handed often is a string.
local function whole(n) return string.format('%d', n) end
-- The same few numbers come again and again among the arguments.
local ints = {}
local function int(s)
  local n = ints[s]
  if not n then
    n = tonumber(s)
    ints[s] = n
  end
  return n
end
local date, soon = whole(now), whole(now + GRACE)

-- Of the item at hand, set by use.
local wf, W, created, root, retention, channel
-- '+node' to run, '-node' to pass on, '*node' whose plan ended, '!node' whose siblings end with it; the
-- earliest timer set
local ready, timed = {}, 0
local changed, told = false, false
local NONE = {}
local worker, takes, taken = '', NONE, '' -- who may begin which of the nodes that become ready, and which it does
local names = {'n', 'z', 'vn', 'vz', 'ct', 'cc'}
local count = {} -- what is to be added to the counts of these names
local recs, puts = {}, {} -- records of nodes that are not written yet

-- Of all items that went well, written at the end: agenda entries with their times, nodes that began with
-- their workers, nodes that run no more. Of the item at hand are those notes after the first noted.
local notes, began, over = {}, {}, {}
local noted = 0

local function use(i, p)
  wf = KEYS[2 + i]
  W, created, root, retention, channel = ARGV[p], ARGV[p + 1], ARGV[p + 2], ARGV[p + 3], ARGV[p + 4]
  ready, timed, changed, told = {}, 0, false, false
  worker, takes, taken = '', NONE, ''
  count, recs, puts = {}, {}, {}
  return p + 5
end

local function bulk(cmd, key, list)
  for i = 1, #list, 1000 do redis.call(cmd, key, unpack(list, i, math.min(i + 999, #list))) end
end

local function cut(list, n)
  for i = #list, n + 1, -1 do list[i] = nil end
end

-- each calls f for every item, with its number and the place of its first argument.
local function each(f)
  local out, p = {}, 2
  for i = 1, int(ARGV[1]) do
    if i == 1 then
      out[1] = f(1, p + 1)
    else
      noted = #notes
      local b, o = #began, #over
      local ok, res = pcall(f, i, p + 1)
      if not ok then
        cut(notes, noted)
        cut(began, b)
        cut(over, o)
        res = {'error', tostring(type(res) == 'table' and res.err or res)}
      end
      out[i] = res
    end
    p = p + 1 + int(ARGV[p])
  end
  if #notes > 0 then bulk('ZADD', agenda, notes) end
  if #began > 0 then bulk('HSET', running, began) end
  if #over > 0 then bulk('HDEL', running, over) end
  return out
end

-- note has someone look at a node at a time.
local function note(at, id)
  notes[#notes + 1] = at
  notes[#notes + 1] = W .. '/' .. id
end

-- begins notes that a node runs.
local function begins(id, who)
  began[#began + 1] = W .. '/' .. id
  began[#began + 1] = who
end

-- close writes what the item left, ends the workflow if all it has is terminal, and tells who waits.
-- have are the counts n z vn vz ct cc as they were. What it returns is a string if nothing was set in
-- motion: 1 if the workflow has ended, or 0, and the time.
local function close(have)
  for i = 1, 6 do
    local name = names[i]
    have[i] = int(have[i] or '0')
    if count[name] then
      have[i] = have[i] + count[name]
      puts[#puts + 1] = name
      puts[#puts + 1] = whole(have[i])
    end
  end
  if #puts > 0 then bulk('HSET', wf, puts) end
  local ended = 0
  if changed and have[2] >= have[1] and have[4] >= have[3] then
    redis.call('PEXPIRE', wf, retention)
    ended, told = 1, true
  end
  if told then redis.call('PUBLISH', channel, ended == 1 and '1' or '0') end
  if #ready == 0 and timed == 0 and taken == '' then return ended .. date end
  return {ready, whole(timed), ended, taken, date}
end

-- flow makes the functions that act on the graph, for those scripts and items that need them.
local function flow()
  local function record(id)
    local rec = recs[id]
    if rec == nil then rec = redis.call('HGET', wf, id) end
    return rec
  end

  local function put(id, rec)
    recs[id] = rec
    puts[#puts + 1] = id
    puts[#puts + 1] = rec
  end

  local function add(name, n) count[name] = (count[name] or 0) + n end

  local function terminal(st) return st == 'S' or st == 'F' or st == 'X' or st == 'K' or st == 'k' end

  -- emit makes a node runnable now or at its time. One that may be taken begins at once.
  local function emit(id, delay)
    local at = 0
    if delay ~= '' then
      if string.sub(delay, 1, 1) == '@' then at = tonumber(string.sub(delay, 2)) else at = now + tonumber(delay) end
    end
    if at > now then
      put(id, 'D|0|0|0|' .. whole(at) .. '|')
      note(whole(at), id)
      if timed == 0 or at < timed then timed = at end
    elseif takes[id] and taken == '' then
      taken = id
      put(id, 'R|0|0|0|' .. date .. '|' .. worker)
      begins(id, worker)
    else
      note(soon, id)
      ready[#ready + 1] = '+' .. id
    end
  end

  -- release emits a node, or lets it wait for a place of its group. lim is 'group cap' or ''.
  local function release(id, delay, lim)
    if lim ~= '' then
      local g, cap = string.match(lim, '^(%S+) (%d+)$')
      local held = wf .. ':h' .. g
      if redis.call('SISMEMBER', held, id) == 0 and redis.call('HEXISTS', wf, 'q' .. id) == 0 then
        local n = redis.call('SCARD', held)
        if n == 0 then
          puts[#puts + 1] = 'h' .. g
          puts[#puts + 1] = '1'
        end
        if n >= tonumber(cap) then
          redis.call('RPUSH', wf .. ':w' .. g, id .. ' ' .. delay)
          return
        end
        redis.call('SADD', held, id)
      end
    end
    emit(id, delay)
  end

  -- give gives back a place of a group and lets the next one have it. back is 'group holder' or ''.
  local function give(back)
    if back == '' then return end
    local g, holder = string.match(back, '^(%S+) (%S+)$')
    if redis.call('SREM', wf .. ':h' .. g, holder) == 0 then
      -- What has the place for it was not let in yet: it needs none any more.
      local rec = record(holder)
      if not (rec and terminal(string.sub(rec, 1, 1))) then redis.call('HSET', wf, 'q' .. holder, '1') end
      return
    end
    while true do
      local nextup = redis.call('LPOP', wf .. ':w' .. g)
      if not nextup then return end
      local id, delay = string.match(nextup, '^(%S+) (%S*)$')
      local rec = record(id)
      if redis.call('HEXISTS', wf, 'q' .. id) == 1 then
        emit(id, delay)
      elseif not (rec and terminal(string.sub(rec, 1, 1))) then
        redis.call('SADD', wf .. ':h' .. g, id)
        emit(id, delay)
        return
      end
    end
  end

  -- skip marks a node that cannot run any more; passing that on is a step of its own.
  local function skip(id, cause)
    local rec = record(id)
    if rec and string.sub(rec, 1, 1) ~= 'E' then return end
    put(id, 'k|' .. cause)
    note(soon, id)
    ready[#ready + 1] = '-' .. id
    if id == root then told = true end
  end

  -- wanted reads how many outcomes a join needs: 'k', or 'k+map' for k and the members of a map.
  local function wanted(need)
    local k, map = string.match(need, '^(%d+)%+(.+)$')
    if not k then return tonumber(need) end
    local m = redis.call('HGET', wf, 'm' .. map)
    if not m then return nil end
    return tonumber(k) + tonumber(m)
  end

  -- ripen releases a node that has all it waits for, unless it was revoked or skipped meanwhile.
  local function ripen(id, delay, lim)
    local rec = record(id)
    if not (rec and terminal(string.sub(rec, 1, 1))) then release(id, delay, lim) end
  end

  local function join(id, need, delay, lim)
    if need == '1' or need == '0' then return ripen(id, delay, lim) end
    local c = redis.call('HINCRBY', wf, 'j' .. id, 1)
    local n = wanted(need)
    if n and c >= n then
      redis.call('HDEL', wf, 'j' .. id)
      ripen(id, delay, lim)
    end
  end

  -- fire runs a catch, which counts only from now on.
  local function fire(id, cause, delay)
    local base = id
    if string.find(string.match(id, '[^:]*$'), '.', 1, true) then base = string.match(id, '^(.*)%.%d+$') end
    if redis.call('HSETNX', wf, 'y' .. base .. ':' .. cause, '1') == 0 then return end
    if record(id) then return end
    add('n', 1)
    put(id, 'Q|0|0|0|0|')
    release(id, delay, '')
  end

  -- follow lets one outcome act on the node at the end of an edge.
  local function follow(outcome, cause, id, kind, need, delay, lim)
    local ok = outcome == 'S'
    if kind == 'n' then
      if ok then join(id, need, delay, lim) else skip(id, cause) end
    elseif kind == 'a' then
      join(id, need, delay, lim)
    elseif kind == 'i' then
      if not ok then return skip(id, cause) end
      local c = redis.call('HINCRBY', wf, 'j' .. id .. '!', 1)
      if c >= wanted(need) then
        redis.call('HDEL', wf, 'j' .. id .. '!')
        local rec = record(id)
        if rec and string.sub(rec, 1, 1) == 'E' then emit(id, '') end
      end
    elseif kind == 'o' then
      if ok then ripen(id, delay, lim) end
    elseif kind == 'h' then
      if ok then ripen(id, delay, lim) else skip(id, cause) end
    elseif kind == 'r' then
      if not ok then fire(id, cause, delay) end
    elseif kind == 'e' then
      if outcome == 'K' then
        local rec = record(cause)
        if rec and string.sub(rec, 1, 1) == 'F' then fire(id, cause, delay) end
      elseif outcome == 'F' then
        fire(id, cause, delay)
      end
    elseif kind == 'p' then
      note(soon, id)
      ready[#ready + 1] = '*' .. id
    end
  end

  -- op makes a node terminal and lets that act. o: node, outcome (S F X, or K to pass a skip on), epoch
  -- it must have ('' any), body, flags (v virtual, c member of a map, p may end a planned node,
  -- f its siblings may end with it, >node what is skipped is so because of that), place to give
  -- back. Then per edge: node, kind, need, delay, lim.
  local function op(node, outcome, epoch, body, flags, back, first, n, revoked)
    local rec = record(node)
    local st = rec and string.sub(rec, 1, 1) or ''
    local cause = string.match(flags, '>(.*)$') or node
    if outcome == 'K' then
      if st ~= 'k' then return 'done' end
      cause = string.sub(rec, 3)
      put(node, 'K|' .. cause)
      redis.call('HDEL', wf, 'a' .. node)
    else
      if terminal(st) then return 'done' end
      if st == 'P' and not string.find(flags, 'p', 1, true) then return 'done' end
      local have, attempt, _, started, owner = string.match(rec or '', '^%a|(%d*)|(%d*)|(%d*)|([%d-]*)|(.*)$')
      if epoch ~= '' and have and epoch ~= have then return 'stale' end
      if st == 'R' or st == 'P' then
        if st == 'R' then attempt = tonumber(attempt) + 1 end
        started = whole(tonumber(started) - created)
      else
        started = ''
      end
      put(node, outcome .. '|' .. (attempt or '') .. '|' .. (started or '') .. '|' .. whole(now - created) .. '|' .. (owner or '') .. '|' .. body)
      if st == 'R' then over[#over + 1] = W .. '/' .. node end
      if outcome == 'F' then
        redis.call('HDEL', wf, 'e' .. node, 'p' .. node)
      else
        redis.call('HDEL', wf, 'a' .. node, 'e' .. node, 'p' .. node)
      end
      if node == root then told = true end
    end
    changed = true
    if st ~= 'R' then -- what runs has left the agenda when it began
      redis.call('ZREM', agenda, W .. '/' .. node)
      for i = #notes, noted + 2, -2 do
        if notes[i] == W .. '/' .. node then
          table.remove(notes, i)
          table.remove(notes, i - 1)
        end
      end
    end
    add(string.find(flags, 'v', 1, true) and 'vz' or 'z', 1)
    if string.find(flags, 'c', 1, true) then add('cc', 1) end
    if not revoked then
      if string.find(flags, 'f', 1, true) then
        note(whole(now + 2 * GRACE), '!fast ' .. node)
        ready[#ready + 1] = '!' .. node
      end
      for i = 0, n - 1 do
        local a = first + i * 5
        follow(outcome, cause, ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4])
      end
      give(back)
    end
    return 'ok'
  end

  return {record = record, put = put, add = add, emit = emit, release = release, wanted = wanted, ripen = ripen, op = op}
end
