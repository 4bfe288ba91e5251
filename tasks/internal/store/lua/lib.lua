-- Shared by the scripts that change a workflow; put in front of each of them.
-- KEYS[1] workflow hash, KEYS[2] agenda, KEYS[3] running
-- ARGV[1] workflow id, ARGV[2] created (unix ms), ARGV[3] root node, ARGV[4] retention (ms),
-- ARGV[5] channel that tells the end
local wf, agenda, running = KEYS[1], KEYS[2], KEYS[3]
local W, created, root, retention, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local GRACE = 2000 -- ms until someone else looks after what was released and not handed over
-- '+node' to run, '-node' to pass on, '*node' whose plan ended, '!node' whose siblings end with it; the
-- earliest timer set
local ready, timed = {}, 0
local changed, told = false, false

local function terminal(st) return st == 'S' or st == 'F' or st == 'X' or st == 'K' or st == 'k' end

local function rel() return string.format('%d', now - created) end

-- emit makes a node runnable now or at its time.
local function emit(id, delay)
  local at = 0
  if delay ~= '' then
    if string.sub(delay, 1, 1) == '@' then at = tonumber(string.sub(delay, 2)) else at = now + tonumber(delay) end
  end
  if at > now then
    redis.call('HSET', wf, id, 'D|0|0|0|' .. string.format('%d', at) .. '|')
    redis.call('ZADD', agenda, at, W .. '/' .. id)
    if timed == 0 or at < timed then timed = at end
  else
    redis.call('ZADD', agenda, now + GRACE, W .. '/' .. id)
    ready[#ready + 1] = '+' .. id
  end
end

-- release emits a node, or lets it wait for a place of its group. lim is 'group cap' or ''.
local function release(id, delay, lim)
  if lim ~= '' then
    local g, cap = string.match(lim, '^(%S+) (%d+)$')
    local held = wf .. ':h' .. g
    if redis.call('SISMEMBER', held, id) == 0 then
      if redis.call('SCARD', held) >= tonumber(cap) then
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
  if redis.call('SREM', wf .. ':h' .. g, holder) == 0 then return end
  while true do
    local nextup = redis.call('LPOP', wf .. ':w' .. g)
    if not nextup then return end
    local id, delay = string.match(nextup, '^(%S+) (%S*)$')
    local rec = redis.call('HGET', wf, id)
    if not (rec and terminal(string.sub(rec, 1, 1))) then
      redis.call('SADD', wf .. ':h' .. g, id)
      emit(id, delay)
      return
    end
  end
end

-- skip marks a node that cannot run any more; passing that on is a step of its own.
local function skip(id, cause)
  local rec = redis.call('HGET', wf, id)
  if rec and string.sub(rec, 1, 1) ~= 'E' then return end
  redis.call('HSET', wf, id, 'k|' .. cause)
  redis.call('ZADD', agenda, now + GRACE, W .. '/' .. id)
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
  local rec = redis.call('HGET', wf, id)
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
  if redis.call('HEXISTS', wf, id) == 1 then return end
  redis.call('HINCRBY', wf, 'n', 1)
  redis.call('HSET', wf, id, 'Q|0|0|0|0|')
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
      local rec = redis.call('HGET', wf, id)
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
      local rec = redis.call('HGET', wf, cause)
      if rec and string.sub(rec, 1, 1) == 'F' then fire(id, cause, delay) end
    elseif outcome == 'F' then
      fire(id, cause, delay)
    end
  elseif kind == 'p' then
    redis.call('ZADD', agenda, now + GRACE, W .. '/' .. id)
    ready[#ready + 1] = '*' .. id
  end
end

-- op makes a node terminal and lets that act. o: node, outcome (S F X, or K to pass a skip on), epoch
-- it must have ('' any), body, flags (v virtual, c member of a map, p may end a planned node,
-- f its siblings may end with it, >node what is skipped is so because of that), place to give back. Then per edge: node, kind, need, delay, lim.
local function op(node, outcome, epoch, body, flags, back, first, n, revoked)
  local rec = redis.call('HGET', wf, node)
  local st = rec and string.sub(rec, 1, 1) or ''
  local cause = string.match(flags, '>(.*)$') or node
  if outcome == 'K' then
    if st ~= 'k' then return 'done' end
    cause = string.sub(rec, 3)
    redis.call('HSET', wf, node, 'K|' .. cause)
    redis.call('HDEL', wf, 'a' .. node)
  else
    if terminal(st) then return 'done' end
    if st == 'P' and not string.find(flags, 'p', 1, true) then return 'done' end
    local have, attempt, _, started, owner = string.match(rec or '', '^%a|(%d*)|(%d*)|(%d*)|([%d-]*)|(.*)$')
    if epoch ~= '' and have and epoch ~= have then return 'stale' end
    if st == 'R' or st == 'P' then
      if st == 'R' then attempt = tonumber(attempt) + 1 end
      started = string.format('%d', tonumber(started) - created)
    else
      started = ''
    end
    redis.call('HSET', wf, node, outcome .. '|' .. (attempt or '') .. '|' .. (started or '') .. '|' .. rel() .. '|' .. (owner or '') .. '|' .. body)
    if st == 'R' then redis.call('HDEL', running, W .. '/' .. node) end
    if outcome == 'F' then
      redis.call('HDEL', wf, 'e' .. node, 'p' .. node)
    else
      redis.call('HDEL', wf, 'a' .. node, 'e' .. node, 'p' .. node)
    end
    if node == root then told = true end
  end
  changed = true
  redis.call('ZREM', agenda, W .. '/' .. node)
  redis.call('HINCRBY', wf, string.find(flags, 'v', 1, true) and 'vz' or 'z', 1)
  if string.find(flags, 'c', 1, true) then redis.call('HINCRBY', wf, 'cc', 1) end
  if not revoked then
    if string.find(flags, 'f', 1, true) then
      redis.call('ZADD', agenda, now + 2 * GRACE, W .. '/!fast ' .. node)
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

-- close ends the workflow if all it has is terminal, and tells who waits.
local function close()
  local ended = 0
  if changed then
    local c = redis.call('HMGET', wf, 'n', 'z', 'vn', 'vz')
    if tonumber(c[2] or 0) >= tonumber(c[1] or 0) and tonumber(c[4] or 0) >= tonumber(c[3] or 0) then
      redis.call('PEXPIRE', wf, retention)
      ended, told = 1, true
    end
  end
  if told then redis.call('PUBLISH', channel, ended) end
  return ended
end
