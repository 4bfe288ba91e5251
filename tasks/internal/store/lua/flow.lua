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
  local have = {}   -- its counts, in the order of counts; then STOPPED, OUTSIDE, FAIRNESS, REVISION, SPANS, DEADLINE, NEXT, BEFORE, OUTPUT
  local counts = {TASKS, TASKS_ENDED, STEPS, STEPS_ENDED, MEMBERS, MEMBERS_ENDED}
  local add         -- what to add to these
  local recs, puts  -- records by node; fields and values to write
  local notes       -- entries for the agenda
  local lanes       -- elements that become ready, by lane
  local cancelled   -- whether it is
  local paused      -- whether it is
  local rooted      -- state of the root, once it has ended
  local done        -- whether to publish that the root has ended
  local completer   -- the external call that completes a node
  -- The steps for the caller: '+node' is ready and has no task, '-node' is skipped and so are the nodes that need it,
  -- '*node' has a plan that has ended, '!node' has failed and its siblings must be revoked, '~task' has an open node
  -- and a signal for it, '>workflow' may begin after the end of this one, '=…' is the result of a guard. timed is the earliest time that a node waits for.
  local todo, timed

  -- use makes the workflow at ARGV[p] the current one. It returns false if there is none. With work it is a new one, which
  -- has a fairness key, and so many tasks and nodes without a task.
  local function use(p, fairness, work, virtual)
    W, created, root, retention, name = ARGV[p], ARGV[p + 1], ARGV[p + 2], ARGV[p + 3], ARGV[p + 4]
    wf = P .. 'w:' .. W
    add, recs, puts, notes, lanes, rooted, done, todo, timed, completer = {}, {}, {}, {}, {}, nil, false, {}, 0, ''
    have = work and {work, '0', virtual, '0', '0', '0'} or redis.call('HMGET', wf, TASKS, TASKS_ENDED, STEPS, STEPS_ENDED, MEMBERS, MEMBERS_ENDED, STOPPED, OUTSIDE, FAIRNESS, REVISION, SPANS, DEADLINE, NEXT, BEFORE, OUTPUT)
    cancelled, paused = have[7] == BY_CANCEL or have[7] == BY_DEADLINE, have[7] == BY_PAUSE or have[7] == BY_ORDER
    if cancelled or paused then have[7] = false end -- failures are followed
    key, revision = fairness or have[9] or W, tonumber(have[10] or '') or 0
    return have[1]
  end

  -- dropProgress deletes the own progress of a node that does not run any more.
  local function dropProgress(node)
    local had = redis.call('HGET', wf, PROGRESS .. node)
    if not had then return end
    redis.call('HDEL', wf, PROGRESS .. node)
    redis.call('HINCRBY', wf, PROGRESS, -(string.match(had, ' (%d+)$') or 0))
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

    local function terminal(rec) return rec and string.find(TERMINAL, string.sub(rec, 1, 1), 1, true) end

    -- note adds an entry for a node to the agenda.
    local function note(at, id)
      notes[#notes + 1] = whole(at)
      notes[#notes + 1] = W .. '/' .. id
    end

    -- timer adds an entry for a node that waits until a time.
    local function timer(at, id)
      note(at, id)
      if timed == 0 or at < timed then timed = at end
    end

    -- waits writes the record of a node in a state of WAITING. at is when it is due, in unix ms, or 0. expires
    -- is in unix ms, or '' for never; nil keeps it.
    local function waits(id, state, attempts, lost, at, expires, lane)
      local rec = record(id)
      expires = expires or rec and string.match(rec, '^[{WAITING}]|%d*|%d*|%d*|(%d*)|') or not rec and expiry(have[11], id) or ''
      put(id, table.concat({state, attempts, lost, whole(at), expires, lane}, '|'))
      if state ~= READY then timer(at, id) end
    end

    -- ready makes a span of nodes ready: on its ready list, or for the slot to continue with, or without a task in todo.
    local function ready(span, lane, lost)
      if lane == '-' then
        note(now + SOON, span)
        todo[#todo + 1] = '+' .. span
      elseif lane == onLane and #on < onMost and not paused and not string.find(span, '-', 1, true) then
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
      if at > now then return waits(id, DELAYED, '0', '0', at, expires, lane) end
      if expires ~= '' then waits(id, READY, '0', '0', 0, expires, lane) end
      ready(id, lane)
    end

    -- release emits a node, once it has a place of its group. lim is 'group cap', or '' for no group.
    local function release(id, lane, delay, lim)
      if lim ~= '' then
        local g, cap = string.match(lim, '^(%S+) (%d+)$')
        local held = wf .. ':' .. HELD .. g
        if redis.call('SISMEMBER', held, id) == 0 and redis.call('HEXISTS', wf, NEEDS_NO_PLACE .. id) == 0 then
          local n = redis.call('SCARD', held)
          if n == 0 then
            puts[#puts + 1] = HELD .. g
            puts[#puts + 1] = '1'
          end
          if n >= tonumber(cap) then
            redis.call('RPUSH', wf .. ':' .. QUEUED .. g, id .. ' ' .. lane .. ' ' .. delay)
            return
          end
          redis.call('SADD', held, id)
        end
      end
      emit(id, lane, delay)
    end

    -- spanOf writes the span of the nodes a to b.
    local function spanOf(prefix, a, b) return prefix .. (a < b and whole(a) .. '-' .. whole(b) or whole(a)) end

    -- emitSpan is emit for the nodes a to b. They need no records: the field SPANS has their times.
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
        local line = table.concat({span, later and whole(at) or '0', expires, lane}, ' ')
        have[11] = (redis.call('HGET', wf, SPANS) or '') .. line .. '\n'
        redis.call('HSET', wf, SPANS, have[11])
      end
      if not later then return ready(span, lane) end
      timer(at, span)
    end

    -- releaseSpan is release for a span of nodes that are released for the first time.
    function releaseSpan(span, lane, delay, lim)
      if delay == '' and lim == '' then return ready(span, lane) end
      local prefix, a, b = string.match(span, '^(.-)(%d+)%-(%d+)$')
      if not prefix then return release(span, lane, delay, lim) end
      a, b = tonumber(a), tonumber(b)
      if lim ~= '' then
        local g, cap = string.match(lim, '^(%S+) (%d+)$')
        local held = wf .. ':' .. HELD .. g
        local n, holders = redis.call('SCARD', held), {}
        if n == 0 then
          puts[#puts + 1] = HELD .. g
          puts[#puts + 1] = '1'
        end
        local last = math.min(b, a + cap - n - 1)
        for i = a, last do holders[#holders + 1] = prefix .. whole(i) end
        bulk('SADD', held, holders)
        if last < b then redis.call('RPUSH', wf .. ':' .. QUEUED .. g, spanOf(prefix, math.max(a, last + 1), b) .. ' ' .. lane .. ' ' .. delay) end
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
      if redis.call('SREM', wf .. ':' .. HELD .. g, holder) == 0 then
        -- The holder has no place yet, and needs none any more.
        if not terminal(record(holder)) then redis.call('HSET', wf, NEEDS_NO_PLACE .. holder, '1') end
        return
      end
      while true do
        local nextup = redis.call('LPOP', wf .. ':' .. QUEUED .. g)
        if not nextup then return end
        local id, lane, delay = string.match(nextup, '^(%S+) (%S+) (%S*)$')
        local prefix, a, b = string.match(id, '^(.-)(%d+)%-(%d+)$')
        if prefix then
          id = prefix .. a
          redis.call('LPUSH', wf .. ':' .. QUEUED .. g, spanOf(prefix, a + 1, tonumber(b)) .. ' ' .. lane .. ' ' .. delay)
        end
        if redis.call('HEXISTS', wf, NEEDS_NO_PLACE .. id) == 1 then
          emit(id, lane, delay)
        elseif not terminal(record(id)) then
          redis.call('SADD', wf .. ':' .. HELD .. g, id)
          emit(id, lane, delay)
          return
        end
      end
    end

    -- skip marks a node that can never run. The nodes that need it are skipped in a later step.
    local function skip(id, cause)
      local rec = record(id)
      if rec and string.find('{TERMINAL}{PLANNED}{OPEN}', string.sub(rec, 1, 1), 1, true) then return end
      put(id, '{SKIPPING}|' .. cause)
      note(now + SOON, id)
      todo[#todo + 1] = '-' .. id
      if id == root then done = true end
    end

    -- wantedBy reads how many outcomes a join needs: 'k', or 'k+map' for k and the members of a map; nil while the number
    -- of members is unknown.
    local function wantedBy(need)
      local k, map = string.match(need, '^(%d+)%+(.+)$')
      if not k then return tonumber(need) end
      local m = redis.call('HGET', wf, MEMBERS_OF .. map)
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
      local c = redis.call('HINCRBY', wf, ARRIVED .. id, m)
      local n = wantedBy(need)
      if n and c >= n then
        redis.call('HDEL', wf, ARRIVED .. id)
        ripen(id, lane, delay, lim)
      end
    end

    -- fire runs a catch for a cause. Only from now on is it counted as a task of the workflow.
    local function fire(id, cause, lane, delay)
      local base = id
      if string.find(string.match(id, '[^:]*$'), '.', 1, true) then base = string.match(id, '^(.*)%.%d+$') end
      if redis.call('HSETNX', wf, CAUGHT .. base .. ':' .. cause, '1') == 0 then return end
      if record(id) then return end
      more(TASKS, 1)
      waits(id, READY, '0', '0', 0, '', lane)
      release(id, lane, delay, '')
    end

    -- follow applies m equal outcomes to the node at the end of an edge. The kinds of edges are in graph.go.
    local function follow(outcome, cause, m, id, kind, need, delay, lim, lane)
      local ok = outcome == SUCCEEDED
      if kind == 'need' then
        if not ok then return skip(id, cause) end
        if string.find(id, '-', 1, true) then ripenSpan(id, lane, delay) else join(id, lane, need, delay, lim, m) end
      elseif kind == 'any' then
        join(id, lane, need, delay, lim, m)
      elseif kind == 'member' then
        if not ok then return skip(id, cause) end
        if redis.call('HINCRBY', wf, ARRIVED .. id .. '!', m) >= wantedBy(need) then
          redis.call('HDEL', wf, ARRIVED .. id .. '!')
          if string.sub(record(id) or '', 1, 1) == MAPPING then
            put(id, MAPPED)
            ready(id, '-')
          end
        end
      elseif kind == 'first' then
        if ok then ripen(id, lane, delay, lim) end
      elseif kind == 'last' then
        if ok then ripen(id, lane, delay, lim) else skip(id, cause) end
      elseif kind == 'rescue' then
        if not ok then fire(id, cause, lane, delay) end
      elseif kind == 'catch' then
        local failed = outcome == FAILED
        if outcome == SKIPPED then failed = string.sub(record(cause) or '', 1, 1) == FAILED end
        if failed then fire(id, cause, lane, delay) end
      elseif kind == 'no-map' then
        if outcome == FAILED then skip(id, cause) end
      elseif kind == 'replace' then
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
      local state, n = string.match(rec or '', '^([{OPEN}{WAITING}])|(%d*)|')
      if state == OPEN then return n end
      return whole((tonumber(n) or 0) + 1)
    end

    -- shut removes a node from the index of open nodes.
    local function shut(node, task)
      local nodes = P .. 'open:' .. task
      redis.call('ZREM', nodes, W .. '/' .. node)
      if redis.call('EXISTS', nodes) == 0 then redis.call('ZREM', P .. 'opentasks', task) end
    end

    -- guard returns 'ok' if a node may be changed, or the reason why not; see apply.
    function guard(node, condition, proof, task)
      if condition == 'planned' then return redis.call('HGET', wf, PLANNED_AT .. node) == proof and 'ok' or 'stale' end
      local rec = record(node)
      if terminal(rec) then
        return completer ~= '' and string.match(rec, '^[{RAN}]|%d*|%d*|%d*|([^|]*)|') == completer and 'done' or 'ended'
      end
      local state = string.sub(rec or '', 1, 1)
      if have[7] or state == PLANNED then return 'ended' end
      if condition == 'open' then return state == OPEN and 'ok' or 'closed' end
      if condition == 'signal' then
        if state ~= OPEN then return 'closed' end
        local id, left = string.match(redis.call('HGET', wf, SIGNALS .. task) or '', '^(%S+) [^\n]*\n(.*)$')
        if id ~= proof then return 'stale' end
        redis.call('HSET', wf, DELIVERED .. task, id, SIGNALS .. task, left)
        if left == '' then redis.call('HDEL', wf, SIGNALS .. task) end
        return 'ok'
      end
      if condition == 'overdue' then
        local attempt, deadline = string.match(rec or '', '^{OPEN}|(%d*)|%d*|(%d*)$')
        return attempt == proof and tonumber(deadline) > 0 and tonumber(deadline) <= now and 'ok' or 'stale'
      end
      if redis.call('HGET', wf, TOKEN .. node) ~= attemptOf(rec) .. ' ' .. proof then return 'stale' end
      return (condition == 'token' or state == OPEN) and 'ok' or 'closed'
    end

    -- open makes m nodes wait for completion from outside; see apply.
    function open(task, b, m)
      local listed = {}
      for i = b, b + 3 * (m - 1), 3 do
        local node, attempt, limit = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
        local rec = record(node)
        if attempt == '' then attempt = attemptOf(rec) end
        if not have[7] and not terminal(rec) and attemptOf(rec) == attempt then
          local since, deadline = string.match(rec or '', '^{OPEN}|%d*|(%d*)|(%d*)$')
          if deadline ~= '0' then deadline = limit > 0 and whole(now + limit) or '0' end -- what has none gets none
          put(node, '{OPEN}|' .. attempt .. '|' .. (since or whole(math.max(0, now - created))) .. '|' .. deadline)
          listed[#listed + 1] = '0'
          listed[#listed + 1] = W .. '/' .. node
          if deadline ~= '0' then timer(now + limit, node) end
        end
      end
      if #listed == 0 then return end
      bulk('ZADD', P .. 'open:' .. task, listed)
      redis.call('ZADD', P .. 'opentasks', 0, task)
      puts[#puts + 1] = WAS_OPEN
      puts[#puts + 1] = '1'
      if redis.call('HEXISTS', wf, SIGNALS .. task) == 1 then
        note(now + SOON, '!signal ' .. task)
        todo[#todo + 1] = '~' .. task
      end
    end

    -- due takes the step of a ready node without a task off the agenda, and reports whether it was there: Redis can have lost
    -- the change that made the node ready.
    local function due(node) return redis.call('ZREM', P .. 'agenda', W .. '/' .. node) == 1 end

    -- ends makes a node terminal and follows its n edges, which begin at ARGV[a]. rec is its new record or, after
    -- '?', only the body of it: the rest is then taken from the current record. '!started|worker|' instead of the '?'
    -- means that a worker was running the node, unless it has lost the lease since. flags are the flags of apply. It
    -- reports whether the node was not terminal before.
    function ends(node, outcome, rec, flags, back, a, n, fenced, task)
      local old = record(node)
      local st = old and string.sub(old, 1, 1) or ''
      local cause = string.match(flags, 'cause=(%S+)') or node
      if outcome == SKIPPED then
        if st ~= SKIPPING then return false end
        cause = string.sub(old, 3)
        rec = '{SKIPPED}|' .. cause
      else
        if terminal(old) or (st == PLANNED and not flagged(flags, 'planned')) then return false end
        -- The call may be of a time before the workflow was retried.
        local plan = string.match(flags, 'after=(%S+)')
        if flagged(flags, 'if-cancelled') and not cancelled or plan and not terminal(record(plan))
          or outcome == REVOKED and cause ~= node and string.sub(record(cause) or '', 1, 1) ~= FAILED then return false end
        if outcome == SUCCEEDED and not fenced and flagged(flags, 'step') and not due(node) then return false end
        local ran, worker, body = string.match(rec, '^!(%d*)|([^|]*)|(.*)$')
        body = body or string.match(rec, '^%?(.*)$')
        if body then
          local attempts, started, owner = '', '', ''
          if st == PLANNED then
            attempts, started, owner = string.match(old, '^{PLANNED}|(%d*)|%d*|(%d*)|(.*)$')
          elseif st == OPEN then
            attempts, started = string.match(old, '^{OPEN}|(%d*)|(%d*)|')
          elseif ran and (st == READY or not string.find(st, '[{WAITING}]')) then
            attempts, started, owner = attemptOf(old), ran, worker
          elseif string.find(st, '[{WAITING}]') then
            attempts = string.match(old, '^.|(%d*)|')
          end
          if flagged(flags, 'external') then attempts, owner = attemptOf(old), completer end
          rec = outcome .. '|' .. attempts .. '|' .. started .. '|' .. whole(now - created) .. '|' .. owner .. '|' .. body
        end
      end
      put(node, rec)
      if outcome == SUCCEEDED and (flagged(flags, 'member') or flagged(flags, 'drop')) then redis.call('HDEL', wf, INPUT .. node) end
      if node == root then
        done, rooted = true, outcome
      end
      if not fenced then
        -- A worker may have a lease of it: from now on results are checked node by node.
        if (outcome == REVOKED or outcome == FAILED or (flagged(flags, 'external') and st ~= OPEN)) and (flagged(flags, 'member') or not flagged(flags, 'step')) and not have[8] then
          have[8] = '1'
          redis.call('HSET', wf, OUTSIDE, '1')
        end
        redis.call('ZREM', P .. 'agenda', W .. '/' .. node)
        for i = #notes, 2, -2 do
          if notes[i] == W .. '/' .. node then
            table.remove(notes, i)
            table.remove(notes, i - 1)
          end
        end
      end
      if st == OPEN then shut(node, task) end
      if flagged(flags, 'clear') or st == OPEN then redis.call('HDEL', wf, ERROR .. node, TOKEN .. node) dropProgress(node) end
      more(flagged(flags, 'step') and STEPS_ENDED or TASKS_ENDED, 1)
      if flagged(flags, 'member') then more(MEMBERS_ENDED, 1) end
      if have[7] then return true end -- revoked: nothing follows
      if flagged(flags, 'fail-fast') then
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
        local node, attempts, lost, delay, state, lane, message, tried = unpack(ARGV, i, i + 7)
        if have[7] or terminal(record(node)) then
          -- It was revoked in the meantime.
        else
          local opened = string.match(record(node) or '', '^{OPEN}|%d*|(%d*)|')
          if opened then
            shut(node, task)
            tried = string.gsub(tried, '^(%d+)||', '%1|' .. whole(created + opened) .. '|' .. whole(now), 1)
          end
          if message ~= '' then redis.call('HSET', wf, ERROR .. node, message) end
          if state == RETRYING then dropProgress(node) end
          if tried ~= '' then remember(wf, node, tried) end
          local d = tonumber(delay)
          if d > 0 then
            waits(node, state, attempts, lost, now + d, nil, lane)
          else
            waits(node, READY, attempts, lost, 0, nil, lane)
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
      put(node, '{PLANNED}|' .. ARGV[b + 1])
      put(GRAPH .. node, ARGV[b + 2])
      put(PLANNED_AT .. node, whole(math.max(0, now - created)))
      redis.call('HDEL', wf, ERROR .. node)
      dropProgress(node)
      more(TASKS, tonumber(ARGV[b + 3]))
      if ARGV[b + 4] ~= '0' then more(STEPS, tonumber(ARGV[b + 4])) end
      local k = tonumber(ARGV[b + 5])
      b = b + 6
      for j = b, b + 2 * k - 2, 2 do put(ARGV[j], ARGV[j + 1]) end
      b = b + 2 * k
      local r = tonumber(ARGV[b])
      for j = b + 1, b + 4 * r - 3, 4 do releaseSpan(ARGV[j], ARGV[j + 1], ARGV[j + 2], ARGV[j + 3]) end
      return b + 1 + 4 * r
    end

    -- extend adds the members of a map, whose inputs are stored already, and looks at its n edges, which begin at ARGV[a]; see apply.
    function extend(b, a, n)
      local node, m, step, lane, delay, lim = unpack(ARGV, b, b + 5)
      m = tonumber(m)
      local after = b + 6
      local begun = record(node) and not string.find(record(node), '^[{WAITING}]')
      if have[7] or begun or redis.call('HEXISTS', wf, MEMBERS_OF .. node) == 1 or not due(node) then return after end
      put(node, m == 0 and MAPPED or MAPPING)
      redis.call('HSET', wf, MEMBERS_OF .. node, m)
      if m == 0 then
        ready(node, '-')
      else
        more(step == '1' and STEPS or TASKS, m)
        more(MEMBERS, m)
        releaseSpan(m == 1 and node .. '.0' or node .. '.0-' .. whole(m - 1), lane, delay, lim)
      end
      for i = a, a + 6 * (n - 1), 6 do
        local c = tonumber(redis.call('HGET', wf, ARRIVED .. ARGV[i]) or 0)
        if c >= wantedBy(ARGV[i + 2]) then
          redis.call('HDEL', wf, ARRIVED .. ARGV[i])
          ripen(ARGV[i], ARGV[i + 5], ARGV[i + 3], ARGV[i + 4])
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
    local gone, drop = {}, string.find(flags, 'member', 1, true) or string.find(flags, 'drop', 1, true)
    for i = b, b + 2 * m - 2, 2 do
      recs[ARGV[i]] = ARGV[i + 1]
      if drop then gone[#gone + 1] = INPUT .. ARGV[i] end
      if ARGV[i] == root then
        done, rooted = true, SUCCEEDED
      end
      if string.find(flags, 'clear', 1, true) then
        gone[#gone + 1] = ERROR .. ARGV[i]
        gone[#gone + 1] = TOKEN .. ARGV[i]
        dropProgress(ARGV[i])
      end
    end
    bulk('HDEL', wf, gone)
    add[TASKS_ENDED] = (add[TASKS_ENDED] or 0) + m
    if string.find(flags, 'member', 1, true) then add[MEMBERS_ENDED] = (add[MEMBERS_ENDED] or 0) + m end
    if have[7] then return end
    if n == 0 and back == '' then return end
    rest()
    followAll(SUCCEEDED, '', m, a, n)
    if back ~= '' then
      for i = b, b + 2 * m - 2, 2 do give(back, ARGV[i]) end
    end
  end

  -- apply makes the changes of the current workflow, which begin at ARGV[p]. fenced: the leases of the nodes were those of the
  -- caller. The arguments are the number of changes, then of each:
  --   outcome  SUCCEEDED, FAILED, REVOKED: the nodes end in this state; SKIPPED: skipped nodes become terminal; again: they run
  --            again; plan: a plan replaces a node; extend: a map gets its members; open: nodes wait for an external result;
  --            guard: the next changes are made only if a condition holds
  --   flags    words, separated by spaces. step: the nodes are steps, not tasks; member: they are members of a map; planned: nodes with
  --            a plan may end; drop: a success deletes their inputs, as for members; clear: their last error, own progress and token are deleted; fail-fast: their siblings may have to be
  --            revoked; external: they are completed externally; if-cancelled: only while the workflow is cancelled; after=<node>:
  --            only once this node, the last of its plan, has ended; cause=<node>: the cause of the skips that follow, and of
  --            REVOKED, which is only while that node has failed
  --   back     place of a group to return: 'group holder', 'group' if each node is its own holder, or ''
  --   queue, task   for the counts; an empty queue is not counted. The task is always given for nodes that may be open
  --   number of edges, then of each: node, kind, need, delay, lim, lane
  --   number of nodes, then of each
  --            nodes that end: node, record (as in ends)
  --            again: node, attempts, deaths, delay ms, state while it waits, lane, error, the run that has ended (see remember) or ''
  --            plan: node, 'attempts|deaths|started|owner', graph, number of tasks, number of steps,
  --            number of inputs, then of each: field, value; number of roots, then of each: span, lane, delay, lim
  --            extend: node, number of members, 1 if they are steps, lane, delay, lim; the edges lead to the joins over the members
  --            open: node, attempt ('' for the current one), ms until its deadline or 0
  --            guard: node, condition, proof, name of the call or ''. The conditions are token: proof is the hash of the node's token;
  --            open-token: the same, and the node is open; overdue: proof is its attempt, whose deadline has passed; planned: proof
  --            is when its plan was stored; signal: the node is open, and proof is the id of the first signal of the task, which is
  --            removed
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
      if outcome ~= SUCCEEDED or not fenced or have[8] then rest() end
      if outcome == 'plan' then
        p = plan(b)
      elseif outcome == 'extend' then
        p = extend(b, a, n)
      elseif outcome == 'again' then
        again(b, m, task)
        p = b + 8 * m
      elseif outcome == 'open' then
        open(task, b, m)
        p = b + 3 * m
      elseif outcome == 'guard' then
        if ARGV[b + 1] ~= 'planned' then completer = ARGV[b + 3] end
        local verdict = guard(ARGV[b], ARGV[b + 1], ARGV[b + 2], task)
        todo[#todo + 1] = '=' .. verdict
        if verdict ~= 'ok' then return end
        p = b + 4
      else
        if outcome == SUCCEEDED and fenced and not have[8] then
          succeed(flags, back, a, n, b, m)
        else
          number = 0
          for i = b, b + 2 * m - 2, 2 do
            if ends(ARGV[i], outcome, ARGV[i + 1], flags, back, a, n, fenced, task) then
              number = number + 1
              if queue ~= '' and outcome == FAILED then failing(task, W .. '/' .. ARGV[i]) end
            end
          end
        end
        p = b + 2 * m
      end
      if queue ~= '' and not fenced then count(queue, task, outcome, number) end -- else the worker counts
    end
  end

  -- close writes the rest of the changes, and ends the workflow if all its nodes are terminal. It returns the steps for the caller: {id, 1 if the
  -- workflow has ended or 0, ms until the earliest time that a node waits for or 0, todo…}, or nil for nothing.
  local function close()
    local changed = add[TASKS_ENDED] or add[STEPS_ENDED]
    for i = 1, 6 do
      have[i] = tonumber(have[i] or '0')
      if add[counts[i]] then
        have[i] = have[i] + add[counts[i]]
        puts[#puts + 1] = counts[i]
        puts[#puts + 1] = whole(have[i])
      end
    end
    local over = changed and have[2] >= have[1] and have[4] >= have[3]
    if rooted then
      puts[#puts + 1] = ROOT
      puts[#puts + 1] = rooted
    end
    if #puts > 0 then
      puts[#puts + 1] = REVISION
      puts[#puts + 1] = whole(math.max(now, revision + 1))
      bulk('HSET', wf, puts)
    end
    bulk('ZADD', P .. 'agenda', notes)
    for lane, els in pairs(lanes) do
      push(lane, key, els)
    end
    if over then
      if have[11] then
        for span in string.gmatch(have[11], '(%S+) [^\n]*\n') do redis.call('ZREM', P .. 'agenda', W .. '/' .. span) end
        redis.call('HDEL', wf, SPANS)
      end
      if have[12] then redis.call('ZREM', P .. 'agenda', W .. '/!deadline') end
      if have[14] then redis.call('ZREM', P .. 'agenda', W .. '/!order') end
      if paused then
        redis.call('DEL', wf .. ':paused')
        redis.call('HDEL', wf, STOPPED)
      end
      local state = rooted or redis.call('HGET', wf, ROOT)
      if state == SKIPPED then
        local rec = redis.call('HGET', wf, string.match(redis.call('HGET', wf, root), '^{SKIPPED}|(.*)$') or root)
        state = rec and string.sub(rec, 1, 1)
      end
      local success, failure = string.match(retention, '^(%d+),(%d+)$')
      local keep = (state == SUCCEEDED or have[7]) and success or failure
      redis.call('PEXPIRE', wf, keep)
      redis.call('PEXPIRE', wf .. ':log', keep)
      if have[15] then redis.call('PEXPIRE', wf .. ':out', keep) end
      local chosen = chosenKey(W)
      if chosen then redis.call('PEXPIRE', chosen, keep) end
      ended(W, name, (state == SUCCEEDED or state == REVOKED) and state or FAILED, created)
      if have[13] then todo[#todo + 1] = '>' .. have[13] end
    end
    if done or over then
      redis.call('PUBLISH', channel('done:' .. W), over and '1' or '0')
    elseif next(add) then
      redis.call('PUBLISH', channel('changed:' .. W), '')
    end
    if #todo == 0 and timed == 0 and not over then return nil end
    local out = {W, over and 1 or 0, timed == 0 and '0' or whole(math.max(1, timed - now))}
    for i = 1, #todo do out[3 + i] = todo[i] end
    return out
  end

  return {use = use, rest = rest, apply = apply, close = close}
end
