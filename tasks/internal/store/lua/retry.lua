-- retry makes nodes of an ended workflow, or of a copy of it, wait again, and releases nodes that can run.
-- KEYS as in lib
-- ARGV[1..5] five facts of the workflow, as in flow, [6] revision for which the rest was computed, [7] id of the call, [8] number of
-- fields to delete, [9] of values, [10] of planned nodes whose plan has ended,
-- [11] of failed nodes, [12] of lanes, [13] of releases, [14] span of the first nodes or '', [15] reference of the workflow to copy or '' for none, [16] number of runs; then the fields; field, value of each; the planned nodes and
-- the failed ones; the lanes of the workflow; node and run of each of the runs, see remember; span, lane, delay, lim of each release
-- returns {'ok', todo or false}; {'changed'} if the workflow has another revision; {'busy'} while a worker has leases of
-- nodes of it; {'running'}, {'revoked'}, {'damaged'} or {'unknown'}
local MOST_DEATHS = 11 -- as mostLost of the engine, and one more
local W = ARGV[1]
local wf = P .. 'w:' .. W
local source = ARGV[15] == '' and wf or P .. 'w:' .. ARGV[15]
local have = redis.call('HMGET', source, TASKS, PARTS, STOPPED, ABORTED, REVISION, RETRIED_BY, OUTSIDE, FAIRNESS, DEADLINE)
if not have[1] or have[2] then return {'unknown'} end
if have[6] == ARGV[7] then return {'ok', false} end -- the reply of an earlier call was lost
if have[4] then return {'damaged'} end
if have[3] == BY_REVOKE and source == wf then return {'revoked'} end
if redis.call('PTTL', source) < 0 then return {'running'} end
if (have[5] or '') ~= ARGV[6] then return {'changed'} end
if source ~= wf then
  if redis.call('COPY', source, wf) == 0 then return {'ok', false} end -- as above
  have[7], have[9] = false, false
end

local at = 17
-- part returns the next n arguments.
local function part(n)
  local list = {}
  for i = at, at + n - 1 do list[#list + 1] = ARGV[i] end
  at = at + n
  return list
end
local gone, values = part(tonumber(ARGV[8])), part(2 * ARGV[9])
local plans, failed, laneNames = part(tonumber(ARGV[10])), part(tonumber(ARGV[11])), part(tonumber(ARGV[12]))
local runs = part(2 * ARGV[16])

if have[7] then -- nodes that others than their worker ended may still have a lease or be on a ready list
  for _, taker in ipairs(redis.call('ZRANGE', P .. 'takers', 0, -1)) do
    for _, list in ipairs({redis.call('HKEYS', P .. 'lease:' .. string.match(taker, ':(.*)$')), redis.call('LRANGE', P .. 'taken:' .. taker, 0, -1)}) do
      for _, entry in ipairs(list) do
        if string.match(entry, '^[^@/]+') == W then return {'busy'} end
      end
    end
  end
  unready(W, have[8], W .. '/' .. ARGV[14], laneNames, MOST_DEATHS)
end

local stale = {W .. '/!cancel'}
values[#values + 1] = REVISION
values[#values + 1] = whole(math.max(now, (tonumber(have[5] or '') or 0) + 1))
values[#values + 1] = RETRIED_BY
values[#values + 1] = ARGV[7]
if have[9] and tonumber(have[9]) > now then
  redis.call('ZADD', P .. 'agenda', have[9], W .. '/!deadline')
else
  gone[#gone + 1] = DEADLINE
end
redis.call('PERSIST', wf)
redis.call('PERSIST', wf .. ':log')
redis.call('PERSIST', wf .. ':out')
local chosen = chosenKey(W)
if chosen then redis.call('PERSIST', chosen) end
bulk('HDEL', wf, gone)
bulk('HSET', wf, values)
for i = 1, #runs, 2 do remember(wf, runs[i], runs[i + 1]) end
for _, node in ipairs(failed) do stale[#stale + 1] = W .. '/!fast ' .. node end
bulk('ZREM', P .. 'agenda', stale)
for _, node in ipairs(plans) do redis.call('ZADD', P .. 'agenda', whole(now + SOON), W .. '/' .. node) end
reopened(W, ARGV[5], ARGV[2])
local f = flow('', 0, {})
f.use(1)
local release = f.rest()
for i = at, at + 4 * ARGV[13] - 1, 4 do release(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]) end
local todo = f.close()
redis.call('PUBLISH', channel('changed:' .. W), '')
saveDepth()
return {'ok', todo or false}
