-- due makes delayed nodes ready, and claims the other due entries of the agenda, and due schedules: the caller handles them, and they
-- become due again when the claim ends.
-- KEYS as in lib
-- ARGV[1] ms of the claim, [2] most entries to look at, [3] most schedules
-- returns {now, time of the next entry or schedule or 0, number of entries that were due, then of each claimed entry: the entry, its record or
-- false; of a schedule, '!schedule/<name>' and '<now> <since when workers have looked, without an outage>'}
local agenda = P .. 'agenda'
local OUTAGE = 15000 -- ms in which no worker has looked
local first = redis.call('ZRANGE', agenda, 0, 0, 'WITHSCORES')
local some = first[1] and tonumber(first[2]) <= now
local lines = some and redis.call('ZRANGEBYSCORE', agenda, '-inf', whole(now), 'LIMIT', 0, ARGV[2]) or {}
local out = {whole(now), '0', #lines}
local claim = whole(now + ARGV[1])
local over, claims = {}, {}

-- take removes the due time of a span from the field SPANS of its workflow, and returns its lane; nil if there is none.
local function take(wf, spans, span)
  local left, lane = {}, nil
  for s, at, rest in string.gmatch(spans, '(%S+) (%d+)( [^\n]*\n)') do
    local expires
    if s == span and at ~= '0' then
      expires, lane = string.match(rest, '^ (%d*) ([^\n]*)')
      at = '0'
    end
    if expires ~= '' then left[#left + 1] = s .. ' ' .. at .. rest end
  end
  if lane then redis.call('HSET', wf, SPANS, table.concat(left)) end
  return lane
end

for _, line in ipairs(lines) do
  local id, node = string.match(line, '^([^/]+)/(.+)$')
  local have = id and id ~= '!limit' and redis.call('HMGET', P .. 'w:' .. id, FAIRNESS, REVISION, node, TASKS, STOPPED, SPANS)
  local rec = have and have[3]
  local state, lane = string.match(rec or '', '^([{WAITING}])|%d*|%d*|%d*|%d*|([^|]*)$')
  if id == '!limit' then
    claims[#claims + 1] = claim
    claims[#claims + 1] = line
    out[#out + 1] = line
    out[#out + 1] = false
  elseif not have or not have[4] then
    over[#over + 1] = line
  elseif string.find(node, '^[^!].*%-') then -- a span
    over[#over + 1] = line
    lane = have[5] ~= BY_REVOKE and take(P .. 'w:' .. id, have[6] or '', node)
    if lane then
      redis.call('HSET', P .. 'w:' .. id, REVISION, whole(math.max(now, (tonumber(have[2] or '') or 0) + 1)))
      push(lane, have[1] or id, {line})
    end
  elseif state and lane ~= '-' then
    over[#over + 1] = line
    if have[5] ~= BY_REVOKE and state ~= READY then wake(id, node, have, '{WAITING}', state == GATHERING) end
  else
    claims[#claims + 1] = claim
    claims[#claims + 1] = line
    out[#out + 1] = line
    out[#out + 1] = rec
  end
end
bulk('ZREM', agenda, over)
bulk('ZADD', agenda, claims)
local left = some and redis.call('ZRANGE', agenda, 0, 0, 'WITHSCORES') or first
if left[2] then out[2] = left[2] end
local schedules, seen = P .. 'schedules', P .. 'schedule:seen'
local next = redis.call('ZRANGE', schedules, 0, 0, 'WITHSCORES')
local since = whole(now)
if next[1] then
  local had = redis.call('HMGET', seen, 'last', 'since')
  if had[1] and now - had[1] <= OUTAGE and tonumber(had[2]) <= now then since = had[2] end
  redis.call('HSET', seen, 'last', whole(now), 'since', since)
end
if next[1] and ARGV[3] ~= '0' then
  local function claimAll(names)
    for _, name in ipairs(names) do
      redis.call('ZADD', schedules, claim, name)
      out[#out + 1] = '!schedule/' .. name
      out[#out + 1] = whole(now) .. ' ' .. since
    end
  end
  if tonumber(next[2]) <= now then
    -- From both ends: one that ticks often is among the latest, and not late while very many others are due.
    local half = math.ceil(ARGV[3] / 2)
    claimAll(redis.call('ZREVRANGEBYSCORE', schedules, whole(now), '-inf', 'LIMIT', 0, half))
    claimAll(redis.call('ZRANGEBYSCORE', schedules, '-inf', whole(now), 'LIMIT', 0, half))
    next = redis.call('ZRANGE', schedules, 0, 0, 'WITHSCORES')
  end
  if next[1] and (out[2] == '0' or tonumber(next[2]) < tonumber(out[2])) then out[2] = next[2] end
end
saveDepth()
return out
