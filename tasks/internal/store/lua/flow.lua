-- Shared by the scripts that change workflows; appended to lib and index. Creating its functions costs as much as a
-- few writes, so a script calls flow only if necessary.
-- KEYS as in lib
-- ARGV[p] reference of a workflow, [p+1] when it was sent (unix ms), [p+2] root node, [p+3] '<retention of a success, ms>,<of a failure>', [p+4] name: these
-- are its five facts. For its changes see apply
-- returns nothing: it defines flow

-- flow creates the functions. The first onMost nodes that become ready in lane onLane are not put on a ready list but
-- into on: the slot that makes the call continues with them.
local function flow(onLane, onMost, on)
  -- The current workflow, set by use.
  local wf, W, created, root, retention, name, key, revision
  local have = {}   -- its counts, in the order of counts; then its fields x and o (see keys.go), and others
  local counts = {'n', 'z', 'vn', 'vz', 'ct', 'cc'}
  local add         -- what to add to these
  local recs, puts  -- records by node; fields and values to write
  local notes       -- entries for the agenda
  local lanes       -- elements that become ready, by lane
  local cancelled   -- whether it is
  local rooted      -- letter of the root's outcome, once it has one
  local told        -- whether to publish that the root has ended
  local answerer    -- the call that answers for a node
  -- The steps for the caller: '+node' is ready and has no task, '-node' is skipped and so are the nodes that need it,
  -- '*node' has a plan that has ended, '!node' has failed and its siblings must be revoked, '=…' is the result of a
  -- guard. timed is the earliest time that a node waits for.
  local todo, timed

  -- use makes the workflow at ARGV[p] the current one. It returns false if there is none. With work it is a new one, which
  -- has a fairness key, and so many tasks and nodes without a task.
  local function use(p, fairness, work, virtual)
    W, created, root, retention, name = ARGV[p], ARGV[p + 1], ARGV[p + 2], ARGV[p + 3], ARGV[p + 4]
    wf = P .. 'w:' .. W
    add, recs, puts, notes, lanes, rooted, told, todo, timed, answerer = {}, {}, {}, {}, {}, nil, false, {}, 0, ''
    have = work and {work, '0', virtual, '0', '0', '0'} or redis.call('HMGET', wf, 'n', 'z', 'vn', 'vz', 'ct', 'cc', 'x', 'o', 'f', 'v', 'd')
    cancelled = have[7] == 'c'
    if cancelled then have[7] = false end -- failures are followed
    key, revision = fairness or have[9] or W, tonumber(have[10] or '') or 0
    return have[1]
  end

  -- rest creates the functions below, unless they exist, and returns releaseSpan: a node without successors that succeeds
  -- needs none of them.
  local followAll, give, ends, again, plan, extend, open, guard, releaseSpan
  local function rest()
    if followAll then return releaseSpan end

    local function record(id)
      local rec = recs[id]
      if rec == nil then
        rec = redis.call('HGET', wf, id)
        recs[id] = rec
      end
      return rec
    end

    local function put(id, rec)
      recs[id] = rec
      puts[#puts + 1] = id
      puts[#puts + 1] = rec
    end

    local function more(field, n) add[field] = (add[field] or 0) + n end

    local function flagged(flags, f) return string.find(flags, f, 1, true) end

    local function terminal(rec) return rec and string.find('SFXKk', string.sub(rec, 1, 1), 1, true) end

    -- note adds an entry for a node to the agenda.
    local function note(at, id)
      notes[#notes + 1] = whole(at)
      notes[#notes + 1] = W .. '/' .. id
    end

    -- input returns the literal input in a record; '' for none.
    local function input(rec)
      if not rec then return '' end
      if string.sub(rec, 1, 1) == 'i' then return string.sub(rec, 2) end
      return string.match(rec, '^[DTQ]|%d*|%d*|%d*|%d*|%d*|[^|]*|(.*)$') or string.match(rec, '^W|%d*|%d*|%d*|%d*|(.*)$') or ''
    end

    -- keepInput keeps the literal input in the old record of a node that ends without success.
    local function keepInput(id, rec)
      local given = input(rec)
      if given == '' then return end
      puts[#puts + 1] = 'i' .. id
      puts[#puts + 1] = given
    end

    -- waits writes the record of a waiting node. letter: D before its first attempt, T after one that failed, Q if it is
    -- ready. at is due, in unix ms, and wait how many ms that is from now; '' if the time was given, and for Q. expires is in
    -- unix ms, or '' for never; nil keeps it.
    local function waits(id, letter, attempts, lost, at, wait, expires, lane)
      local rec = record(id)
      if not expires and (not rec or string.sub(rec, 1, 1) == 'i') then expires = expiry(have[11], id) end
      expires = expires or string.match(rec, '^[DTQ]|%d*|%d*|%d*|%d*|(%d*)|') or ''
      put(id, table.concat({letter, attempts, lost, whole(at), wait, expires, lane, input(rec)}, '|'))
      if letter == 'Q' then return end
      note(at, id)
      if timed == 0 or at < timed then timed = at end
    end

    -- ready makes a span of nodes ready: on its ready list, or for the slot to continue with, or without a task in todo.
    local function ready(span, lane, lost)
      if lane == '-' then
        note(now + SOON, span)
        todo[#todo + 1] = '+' .. span
      elseif lane == onLane and #on < onMost and not string.find(span, '-', 1, true) then
        on[#on + 1] = {W .. '/' .. span, key}
      else
        local els = lanes[lane] or {}
        lanes[lane], els[#els + 1] = els, W .. '/' .. span .. (lost and lost ~= '0' and '@' .. lost or '')
      end
    end

    -- emit makes a node ready now or later. delay is '', ms or '@unix ms'; a suffix '+ms' is the time after that
    -- until the node expires.
    local function emit(id, lane, delay)
      if delay == '' then return ready(id, lane) end
      local absolute, wait, span = string.match(delay, '^(@?)(%d*)%+?(%d*)$')
      local at = math.max(now, (absolute == '' and now or 0) + (tonumber(wait) or 0))
      local expires = span ~= '' and whole(at + span) or ''
      if at > now then return waits(id, 'D', '0', '0', at, absolute == '' and wait or '', expires, lane) end
      if expires ~= '' then waits(id, 'Q', '0', '0', 0, '', expires, lane) end
      ready(id, lane)
    end

    -- release emits a node, once it has a place of its group. lim is 'group cap', or '' for no group.
    local function release(id, lane, delay, lim)
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
            redis.call('RPUSH', wf .. ':w' .. g, id .. ' ' .. lane .. ' ' .. delay)
            return
          end
          redis.call('SADD', held, id)
        end
      end
      emit(id, lane, delay)
    end

    -- spanOf writes the span of the nodes a to b.
    local function spanOf(prefix, a, b) return prefix .. (a < b and whole(a) .. '-' .. whole(b) or whole(a)) end

    -- emitSpan is emit for the nodes a to b. They need no records: the field d has their times.
    local function emitSpan(prefix, a, b, lane, delay)
      if a == b or lane == '-' then
        for i = a, b do emit(prefix .. whole(i), lane, delay) end
        return
      end
      local span = spanOf(prefix, a, b)
      local absolute, wait, lasts = string.match(delay, '^(@?)(%d*)%+?(%d*)$')
      local at = math.max(now, (absolute == '' and now or 0) + (tonumber(wait) or 0))
      local later, expires = at > now, lasts ~= '' and whole(at + lasts) or ''
      if later or expires ~= '' then
        local line = table.concat({span, later and whole(at) or '0', later and absolute == '' and wait or '', expires, lane}, ' ')
        have[11] = (redis.call('HGET', wf, 'd') or '') .. line .. '\n'
        redis.call('HSET', wf, 'd', have[11])
      end
      if not later then return ready(span, lane) end
      note(at, span)
      if timed == 0 or at < timed then timed = at end
    end

    -- releaseSpan is release for a span of nodes that are released for the first time.
    function releaseSpan(span, lane, delay, lim)
      if delay == '' and lim == '' then return ready(span, lane) end
      local prefix, a, b = string.match(span, '^(.-)(%d+)%-(%d+)$')
      if not prefix then return release(span, lane, delay, lim) end
      a, b = tonumber(a), tonumber(b)
      if lim ~= '' then
        local g, cap = string.match(lim, '^(%S+) (%d+)$')
        local held = wf .. ':h' .. g
        local n, holders = redis.call('SCARD', held), {}
        if n == 0 then
          puts[#puts + 1] = 'h' .. g
          puts[#puts + 1] = '1'
        end
        local last = math.min(b, a + cap - n - 1)
        for i = a, last do holders[#holders + 1] = prefix .. whole(i) end
        bulk('SADD', held, holders)
        if last < b then redis.call('RPUSH', wf .. ':w' .. g, spanOf(prefix, math.max(a, last + 1), b) .. ' ' .. lane .. ' ' .. delay) end
        if last < a then return end
        b = last
      end
      emitSpan(prefix, a, b, lane, delay)
    end

    -- give passes the place of a holder on to the next node that waits for one. back is 'group holder', 'group' if the
    -- node itself is the holder, or '' for none.
    function give(back, node)
      if back == '' then return end
      local g, holder = string.match(back, '^(%S+) ?(%S*)$')
      if holder == '' then holder = node end
      if redis.call('SREM', wf .. ':h' .. g, holder) == 0 then
        -- The holder has no place yet, and needs none any more.
        if not terminal(record(holder)) then redis.call('HSET', wf, 'q' .. holder, '1') end
        return
      end
      while true do
        local nextup = redis.call('LPOP', wf .. ':w' .. g)
        if not nextup then return end
        local id, lane, delay = string.match(nextup, '^(%S+) (%S+) (%S*)$')
        local prefix, a, b = string.match(id, '^(.-)(%d+)%-(%d+)$')
        if prefix then
          id = prefix .. a
          redis.call('LPUSH', wf .. ':w' .. g, spanOf(prefix, a + 1, tonumber(b)) .. ' ' .. lane .. ' ' .. delay)
        end
        if redis.call('HEXISTS', wf, 'q' .. id) == 1 then
          emit(id, lane, delay)
        elseif not terminal(record(id)) then
          redis.call('SADD', wf .. ':h' .. g, id)
          emit(id, lane, delay)
          return
        end
      end
    end

    -- skip marks a node that can never run. The nodes that need it are skipped in a later step.
    local function skip(id, cause)
      local rec = record(id)
      if rec and string.find('SFXKkPW', string.sub(rec, 1, 1), 1, true) then return end
      put(id, 'k|' .. cause)
      keepInput(id, rec)
      note(now + SOON, id)
      todo[#todo + 1] = '-' .. id
      if id == root then told = true end
    end

    -- wantedBy reads how many outcomes a join needs: 'k', or 'k+map' for k and the members of a map; nil while the number
    -- of members is unknown.
    local function wantedBy(need)
      local k, map = string.match(need, '^(%d+)%+(.+)$')
      if not k then return tonumber(need) end
      local m = redis.call('HGET', wf, 'm' .. map)
      return m and tonumber(k) + tonumber(m)
    end

    -- ripen releases a node that has all it waits for, unless it was revoked or skipped in the meantime.
    local function ripen(id, lane, delay, lim)
      if not terminal(record(id)) then release(id, lane, delay, lim) end
    end

    -- ripenSpan is ripen for a span.
    local function ripenSpan(span, lane, delay)
      local prefix, a, b = string.match(span, '^(.-)(%d+)%-(%d+)$')
      local first, final = tonumber(a), tonumber(b)
      local function upTo(last)
        if first <= last then emitSpan(prefix, first, last, lane, delay) end
      end
      for from = first, final, 1000 do
        local ids = {}
        for i = from, math.min(from + 999, final) do ids[#ids + 1] = prefix .. whole(i) end
        for i, rec in ipairs(redis.call('HMGET', wf, unpack(ids))) do
          if terminal(recs[ids[i]] or rec) then
            upTo(from + i - 2)
            first = from + i
          end
        end
      end
      upTo(final)
    end

    -- join counts m outcomes that a node waits for.
    local function join(id, lane, need, delay, lim, m)
      if need == '1' or need == '0' then return ripen(id, lane, delay, lim) end
      local c = redis.call('HINCRBY', wf, 'j' .. id, m)
      local n = wantedBy(need)
      if n and c >= n then
        redis.call('HDEL', wf, 'j' .. id)
        ripen(id, lane, delay, lim)
      end
    end

    -- fire runs a catch for a cause. Only from now on is it counted as a task of the workflow.
    local function fire(id, cause, lane, delay)
      local base = id
      if string.find(string.match(id, '[^:]*$'), '.', 1, true) then base = string.match(id, '^(.*)%.%d+$') end
      if redis.call('HSETNX', wf, 'y' .. base .. ':' .. cause, '1') == 0 then return end
      if record(id) then return end
      more('n', 1)
      waits(id, 'Q', '0', '0', 0, '', '', lane)
      release(id, lane, delay, '')
    end

    -- follow applies m equal outcomes to the node at the end of an edge. The kinds of edges are in graph.go.
    local function follow(outcome, cause, m, id, kind, need, delay, lim, lane)
      local ok = outcome == 'S'
      if kind == 'n' then
        if not ok then return skip(id, cause) end
        if string.find(id, '-', 1, true) then ripenSpan(id, lane, delay) else join(id, lane, need, delay, lim, m) end
      elseif kind == 'a' then
        join(id, lane, need, delay, lim, m)
      elseif kind == 'i' then
        if not ok then return skip(id, cause) end
        if redis.call('HINCRBY', wf, 'j' .. id .. '!', m) >= wantedBy(need) then
          redis.call('HDEL', wf, 'j' .. id .. '!')
          if string.sub(record(id) or '', 1, 1) == 'E' then
            put(id, 'e')
            ready(id, '-')
          end
        end
      elseif kind == 'o' then
        if ok then ripen(id, lane, delay, lim) end
      elseif kind == 'h' then
        if ok then ripen(id, lane, delay, lim) else skip(id, cause) end
      elseif kind == 'r' then
        if not ok then fire(id, cause, lane, delay) end
      elseif kind == 'e' then
        local failed = outcome == 'F'
        if outcome == 'K' then failed = string.sub(record(cause) or '', 1, 1) == 'F' end
        if failed then fire(id, cause, lane, delay) end
      elseif kind == 'l' then
        if outcome == 'F' then fire(id, cause, lane, delay) end
      elseif kind == 'p' then
        note(now + SOON, id)
        todo[#todo + 1] = '*' .. id
      end
    end

    -- followAll follows n edges, which begin at ARGV[a].
    function followAll(outcome, cause, m, a, n)
      for i = a, a + 6 * (n - 1), 6 do
        follow(outcome, cause, m, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5])
      end
    end

    -- attemptOf returns the number of the attempt that a node is at, or that comes next.
    local function attemptOf(rec)
      local letter, n = string.match(rec or '', '^([WDTQ])|(%d*)|')
      if letter == 'W' then return n end
      return whole((tonumber(n) or 0) + 1)
    end

    -- unlist removes a node from the index of open nodes.
    local function unlist(node, task)
      local nodes = P .. 'open:' .. task
      redis.call('ZREM', nodes, W .. '/' .. node)
      if redis.call('EXISTS', nodes) == 0 then redis.call('ZREM', P .. 'opentasks', task) end
    end

    -- guard returns 'ok' if a node may be changed, or the reason why not; see apply.
    function guard(node, how, proof)
      if how == 'p' then return redis.call('HGET', wf, 's' .. node) == proof and 'ok' or 'stale' end
      local rec = record(node)
      if terminal(rec) then
        return answerer ~= '' and string.match(rec, '^[SFX]|%d*|%d*|%d*|([^|]*)|') == answerer and 'done' or 'ended'
      end
      local letter = string.sub(rec or '', 1, 1)
      if have[7] or letter == 'P' then return 'ended' end
      if how == 'd' then
        local attempt, deadline = string.match(rec or '', '^W|(%d*)|%d*|(%d*)|')
        return attempt == proof and tonumber(deadline) > 0 and tonumber(deadline) <= now and 'ok' or 'stale'
      end
      if redis.call('HGET', wf, 't' .. node) ~= attemptOf(rec) .. ' ' .. proof then return 'stale' end
      return (how == 't' or letter == 'W') and 'ok' or 'closed'
    end

    -- open makes m nodes wait for completion from outside; see apply.
    function open(task, b, m)
      local listed = {}
      for i = b, b + 3 * (m - 1), 3 do
        local node, attempt, limit = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
        local rec = record(node)
        if attempt == '' then attempt = attemptOf(rec) end
        if not have[7] and not terminal(rec) and attemptOf(rec) == attempt then
          local since, deadline = string.match(rec or '', '^W|%d*|(%d*)|(%d*)|')
          if deadline ~= '0' then deadline = limit > 0 and whole(now + limit) or '0' end -- what has none gets none
          put(node, 'W|' .. attempt .. '|' .. (since or whole(math.max(0, now - created))) .. '|' .. deadline .. '|' .. whole(limit) .. '|' .. input(rec))
          listed[#listed + 1] = '0'
          listed[#listed + 1] = W .. '/' .. node
          if deadline ~= '0' then
            note(now + limit, node)
            if timed == 0 or now + limit < timed then timed = now + limit end
          end
        end
      end
      if #listed == 0 then return end
      bulk('ZADD', P .. 'open:' .. task, listed)
      redis.call('ZADD', P .. 'opentasks', 0, task)
      puts[#puts + 1] = 'w'
      puts[#puts + 1] = '1'
    end

    -- due takes the step of a ready node without a task off the agenda, and reports whether it was there: Redis can have lost
    -- the change that made the node ready.
    local function due(node) return redis.call('ZREM', P .. 'agenda', W .. '/' .. node) == 1 end

    -- ends makes a node terminal and follows its n edges, which begin at ARGV[a]. rec is its new record or, after
    -- '?', only the body of it: the rest is then taken from the current record. '!started|worker|' instead of the '?'
    -- means that a worker was running the node, unless it has left its batch since. flags are the flags of apply. It
    -- reports whether the node was not terminal before.
    function ends(node, outcome, rec, flags, back, a, n, fenced, task)
      local old = record(node)
      local st = old and string.sub(old, 1, 1) or ''
      local cause = string.match(flags, '>(.*)$') or node
      if outcome == 'K' then
        if st ~= 'k' then return false end
        cause = string.sub(old, 3)
        rec = 'K|' .. cause
      else
        if terminal(old) or (st == 'P' and not flagged(flags, 'p')) then return false end
        -- The call may be of a time before the workflow was retried.
        local plan = string.match(flags, '<(.*)$')
        if flagged(flags, 'x') and not cancelled or plan and not terminal(record(plan))
          or outcome == 'X' and cause ~= node and string.sub(record(cause) or '', 1, 1) ~= 'F' then return false end
        if outcome == 'S' and not fenced and flagged(flags, 'v') and not due(node) then return false end
        local ran, worker, body = string.match(rec, '^!(%d*)|([^|]*)|(.*)$')
        body = body or string.match(rec, '^%?(.*)$')
        if body then
          local attempts, started, owner = '', '', ''
          if st == 'P' then
            attempts, started, owner = string.match(old, '^P|(%d*)|%d*|(%d*)|(.*)$')
          elseif st == 'W' then
            attempts, started = string.match(old, '^W|(%d*)|(%d*)|')
          elseif ran then
            attempts, started, owner = attemptOf(old), ran, worker
          elseif st == 'D' or st == 'T' or st == 'Q' then
            attempts = string.match(old, '^.|(%d*)|')
          end
          if flagged(flags, 'a') then attempts, owner = attemptOf(old), answerer end
          rec = outcome .. '|' .. attempts .. '|' .. started .. '|' .. whole(now - created) .. '|' .. owner .. '|' .. body
        end
      end
      put(node, rec)
      if (outcome == 'F' or outcome == 'X') and not have[7] then keepInput(node, old) end
      if node == root then
        told, rooted = true, outcome
      end
      if not fenced then
        -- It may be in a batch: from now on the results of batches are checked node by node.
        if (outcome == 'X' or outcome == 'F' or (flagged(flags, 'a') and st ~= 'W')) and (flagged(flags, 'c') or not flagged(flags, 'v')) and not have[8] then
          have[8] = '1'
          redis.call('HSET', wf, 'o', '1')
        end
        redis.call('ZREM', P .. 'agenda', W .. '/' .. node)
        for i = #notes, 2, -2 do
          if notes[i] == W .. '/' .. node then
            table.remove(notes, i)
            table.remove(notes, i - 1)
          end
        end
      end
      if st == 'W' then unlist(node, task) end
      if flagged(flags, 'd') or st == 'W' then redis.call('HDEL', wf, 'e' .. node, 'p' .. node, 't' .. node) end
      more(flagged(flags, 'v') and 'vz' or 'z', 1)
      if flagged(flags, 'c') then more('cc', 1) end
      if have[7] then return true end -- revoked: nothing follows
      if flagged(flags, 'f') then
        note(now + 2 * SOON, '!fast ' .. node)
        todo[#todo + 1] = '!' .. node
      end
      followAll(outcome, cause, 1, a, n)
      give(back, node)
      return true
    end

    -- again puts m running nodes back, to run again now or later; see apply.
    function again(b, m, task)
      for i = b, b + 8 * (m - 1), 8 do
        local node, attempts, lost, delay, letter, lane, message, tried = unpack(ARGV, i, i + 7)
        if have[7] or terminal(record(node)) then
          -- It was revoked in the meantime.
        else
          local opened = string.match(record(node) or '', '^W|%d*|(%d*)|')
          if opened then
            unlist(node, task)
            tried = string.gsub(tried, '^(%d+)||', '%1|' .. whole(created + opened) .. '|' .. whole(now), 1)
          end
          if message ~= '' then redis.call('HSET', wf, 'e' .. node, message) end
          if letter == 'T' then redis.call('HDEL', wf, 'p' .. node) end
          if tried ~= '' then remember(wf, node, tried) end
          local d = tonumber(delay)
          if d > 0 then
            waits(node, letter, attempts, lost, now + d, delay, nil, lane)
          else
            waits(node, 'Q', attempts, lost, 0, '', nil, lane)
            if not lanes[lane] then lanes[lane] = {} end
            table.insert(lanes[lane], W .. '/' .. node .. (lost ~= '0' and '@' .. lost or ''))
          end
        end
      end
    end

    -- plan puts a graph in the place of a running node; see apply.
    function plan(b)
      local node = ARGV[b]
      if have[7] or terminal(record(node)) then return b + 6 + 2 * ARGV[b + 5] + 1 + 4 * ARGV[b + 6 + 2 * ARGV[b + 5]] end
      put(node, 'P|' .. ARGV[b + 1])
      put('g' .. node, ARGV[b + 2])
      put('s' .. node, whole(math.max(0, now - created)))
      redis.call('HDEL', wf, 'e' .. node, 'p' .. node)
      more('n', tonumber(ARGV[b + 3]))
      if ARGV[b + 4] ~= '0' then more('vn', tonumber(ARGV[b + 4])) end
      local k = tonumber(ARGV[b + 5])
      b = b + 6
      for j = b, b + 2 * k - 2, 2 do put(ARGV[j], ARGV[j + 1]) end
      b = b + 2 * k
      local r = tonumber(ARGV[b])
      for j = b + 1, b + 4 * r - 3, 4 do releaseSpan(ARGV[j], ARGV[j + 1], ARGV[j + 2], ARGV[j + 3]) end
      return b + 1 + 4 * r
    end

    -- extend adds the members of a map, whose inputs are stored already; see apply.
    function extend(b)
      local node, m, counter, lane, delay, lim, joins = unpack(ARGV, b, b + 6)
      m, joins = tonumber(m), tonumber(joins)
      local after = b + 7 + 5 * joins
      if have[7] or record(node) or redis.call('HEXISTS', wf, 'm' .. node) == 1 or not due(node) then return after end
      put(node, m == 0 and 'e' or 'E')
      redis.call('HSET', wf, 'm' .. node, m)
      if m == 0 then
        ready(node, '-')
      else
        more(counter, m)
        more('ct', m)
        releaseSpan(m == 1 and node .. '.0' or node .. '.0-' .. whole(m - 1), lane, delay, lim)
      end
      for a = b + 7, after - 5, 5 do
        local c = tonumber(redis.call('HGET', wf, 'j' .. ARGV[a]) or 0)
        if c >= wantedBy(ARGV[a + 1]) then
          redis.call('HDEL', wf, 'j' .. ARGV[a])
          ripen(ARGV[a], ARGV[a + 4], ARGV[a + 2], ARGV[a + 3])
        end
      end
      return after
    end
    return releaseSpan
  end

  -- succeed makes m successful nodes terminal. Their names and records begin at ARGV[b]. It is equivalent to calls of
  -- ends for each, but with as few commands as for one. None of them may be terminal already.
  local function succeed(flags, back, a, n, b, m)
    if m > 100 then
      for i = b, b + 2 * m - 1, 1000 do
        redis.call('HSET', wf, unpack(ARGV, i, math.min(i + 999, b + 2 * m - 1)))
      end
    else
      for i = b, b + 2 * m - 1 do puts[#puts + 1] = ARGV[i] end
    end
    local gone = {}
    for i = b, b + 2 * m - 2, 2 do
      recs[ARGV[i]] = ARGV[i + 1]
      if ARGV[i] == root then
        told, rooted = true, 'S'
      end
      if string.find(flags, 'd', 1, true) then
        gone[#gone + 1] = 'e' .. ARGV[i]
        gone[#gone + 1] = 'p' .. ARGV[i]
        gone[#gone + 1] = 't' .. ARGV[i]
      end
    end
    bulk('HDEL', wf, gone)
    add['z'] = (add['z'] or 0) + m
    if string.find(flags, 'c', 1, true) then add['cc'] = (add['cc'] or 0) + m end
    if have[7] then return end
    if n == 0 and back == '' then return end
    rest()
    followAll('S', '', m, a, n)
    if back ~= '' then
      for i = b, b + 2 * m - 2, 2 do give(back, ARGV[i]) end
    end
  end

  -- apply makes the changes of the current workflow, which begin at ARGV[p]. fenced: the nodes are in a batch of the
  -- caller. The arguments are the number of changes, then of each:
  --   outcome  S, F, X: the nodes succeed, fail, are revoked; K: skipped nodes become terminal; R: they run again;
  --            P: a plan replaces a node; E: a map gets its members; W: nodes wait for an external result;
  --            G: the next changes are made only if a node allows it
  --   flags    v: they are steps, not tasks; c: they are members of a map; p: planned nodes may end; d: their last error and own
  --            progress are deleted; f: their siblings may have to be revoked; a: they are completed externally;
  --            x: only while the workflow is cancelled; <node: only once this node, the last of its plan, has ended; >node: the
  --            cause of the skips that follow, and of X, which is only while that node has failed (one of these two is the last flag)
  --   back     slot of a group to return: 'group holder', 'group' if each node is its own holder, or ''
  --   queue, task   for the counts of S, F, X and R; an empty queue is not counted. The task is always given for nodes that
  --            may be open
  --   number of edges, then of each: node, kind, need, delay, lim, lane
  --   number of nodes, then of each
  --            for S, F, X, K: node, record (as in ends)
  --            for R: node, attempts, deaths, delay ms, letter, lane, error, the run that has ended (see remember) or ''
  --            for P: node, 'attempts|deaths|started|owner', graph, number of tasks, number of nodes without a task,
  --            number of inputs, then of each: node, record; number of roots, then of each: span, lane, delay, lim
  --            for E: node, number of members, the count that they add to (n or vn), lane, delay, lim, number of joins over the members, then of each: node,
  --            need, delay, lim, lane
  --            for W: node, attempt ('' for the one it is at), ms until its deadline or 0
  --            for G: node, condition, proof, name of the call or ''. The condition is t: proof is the hash of its
  -- token;
  --            e: the same, and the node is open; d: proof is its attempt, whose deadline has passed; p: proof is
  -- when its
  --            plan was stored
  local function apply(p, fenced)
    local changes = tonumber(ARGV[p])
    p = p + 1
    for _ = 1, changes do
      local outcome, flags, back, queue, task, n = unpack(ARGV, p, p + 5)
      n = tonumber(n)
      local a = p + 6
      local m = tonumber(ARGV[a + 6 * n])
      local b = a + 6 * n + 1
      local number = m -- of nodes
      if outcome ~= 'S' or not fenced or have[8] then rest() end
      if outcome == 'P' then
        p = plan(b)
      elseif outcome == 'E' then
        p = extend(b)
      elseif outcome == 'R' then
        again(b, m, task)
        p = b + 8 * m
      elseif outcome == 'W' then
        open(task, b, m)
        p = b + 3 * m
      elseif outcome == 'G' then
        if ARGV[b + 1] ~= 'p' then answerer = ARGV[b + 3] end
        local said = guard(ARGV[b], ARGV[b + 1], ARGV[b + 2])
        todo[#todo + 1] = '=' .. said
        if said ~= 'ok' then return end
        p = b + 4
      else
        if outcome == 'S' and fenced and not have[8] then
          succeed(flags, back, a, n, b, m)
        else
          number = 0
          for i = b, b + 2 * m - 2, 2 do
            if ends(ARGV[i], outcome, ARGV[i + 1], flags, back, a, n, fenced, task) then
              number = number + 1
              if queue ~= '' and outcome == 'F' then failing(task, W .. '/' .. ARGV[i]) end
            end
          end
        end
        p = b + 2 * m
      end
      if queue ~= '' and not fenced then count(queue, task, outcome, number) end -- else the worker counts
    end
  end

  -- close writes the rest of the changes, and ends the workflow if all its nodes are terminal. It requests no
  -- wake-task for queue mine, from which the caller takes next. It returns the steps for the caller: {id, 1 if the
  -- workflow has ended or 0, ms until the earliest time that a node waits for or 0, todo…}, or nil for nothing.
  local function close(mine)
    local changed = add['z'] or add['vz']
    for i = 1, 6 do
      have[i] = tonumber(have[i] or '0')
      if add[counts[i]] then
        have[i] = have[i] + add[counts[i]]
        puts[#puts + 1] = counts[i]
        puts[#puts + 1] = whole(have[i])
      end
    end
    local over = changed and have[2] >= have[1] and have[4] >= have[3]
    if rooted and not over then
      puts[#puts + 1] = 'r'
      puts[#puts + 1] = rooted
    end
    if #puts > 0 then
      puts[#puts + 1] = 'v'
      puts[#puts + 1] = whole(math.max(now, revision + 1))
      bulk('HSET', wf, puts)
    end
    bulk('ZADD', P .. 'agenda', notes)
    for lane, els in pairs(lanes) do
      push(lane, key, els)
      if string.sub(lane, 3) ~= mine then want(string.sub(lane, 3), true) end
    end
    if over then
      if have[11] then
        for span in string.gmatch(have[11], '(%S+) [^\n]*\n') do redis.call('ZREM', P .. 'agenda', W .. '/' .. span) end
        redis.call('HDEL', wf, 'd')
      end
      local letter = rooted or redis.call('HGET', wf, 'r')
      if letter == 'K' then
        local rec = redis.call('HGET', wf, string.match(redis.call('HGET', wf, root), '^K|(.*)$') or root)
        letter = rec and string.sub(rec, 1, 1)
      end
      local success, failure = string.match(retention, '^(%d+),(%d+)$')
      local keep = (letter == 'S' or have[7]) and success or failure
      redis.call('PEXPIRE', wf, keep)
      local chosen = chosenKey(W)
      if chosen then redis.call('PEXPIRE', chosen, keep) end
      ended(W, name, (letter == 'S' or letter == 'X') and letter or 'F', created)
    end
    if told or over then
      redis.call('PUBLISH', 'muster:done:' .. W, over and '1' or '0')
    elseif next(add) then
      redis.call('PUBLISH', 'muster:changed:' .. W, '')
    end
    if #todo == 0 and timed == 0 and not over then return nil end
    local out = {W, over and 1 or 0, timed == 0 and '0' or whole(math.max(1, timed - now))}
    for i = 1, #todo do out[3 + i] = todo[i] end
    return out
  end

  return {use = use, rest = rest, apply = apply, close = close}
end
