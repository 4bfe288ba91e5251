-- pass returns a place, and reserves free places for the nodes that wait. It also ends places and reservations: the caller has made
-- their nodes ready first, if they were delayed.
-- KEYS as in lib
-- ARGV[1] and [2] as in places, [3] place to return or '', [4] 1 to handle expired places and reservations, else 0, then of each node that
-- was not delayed, or whose place or reservation has expired, the step of an earlier call, the last one replaced by 'ended' if the
-- node has ended
-- returns {ms until the next entry of the agenda for the limit or -1, steps as in places…}
if ARGV[3] ~= '' then redis.call('ZREM', placesKey, ARGV[3]) end
if not stored then
  if ARGV[4] == '1' then redis.call('ZREM', P .. 'agenda', note) end
  return {'-1'}
end
for i = 5, #ARGV, 3 do
  local member, ends, since = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local key = since == 'place' and placesKey or reservedKey
  local have = tonumber(redis.call('ZSCORE', key, member) or '')
  if have == ends then -- else it was renewed
    if since == 'ended' then
      ends = now
    elseif tonumber(since) then -- a worker can still delay a node that began to wait a short time ago
      ends = math.min(ends, math.floor(since / 1000) + RESERVED)
    end
    if ends <= now then
      redis.call('ZREM', key, member)
    elseif ends < have then
      redis.call('ZADD', key, whole(ends), member)
    end
  end
end
grant()
if ARGV[4] == '1' then
  for _, what in ipairs({'place', 'reserved'}) do
    local key = what == 'place' and placesKey or reservedKey
    if what == 'reserved' or per == 0 then
      for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. whole(now + LEASE), '+inf', 'LIMIT', 0, MOST_NODES)) do
        redis.call('ZADD', key, whole(now + LEASE), member) -- the clock was set back
      end
    end
    local over = redis.call('ZRANGEBYSCORE', key, '-inf', whole(now), 'WITHSCORES', 'LIMIT', 0, MOST_NODES)
    for i = 1, #over, 2 do
      tell[#tell + 1] = over[i]
      tell[#tell + 1] = over[i + 1]
      tell[#tell + 1] = what
    end
  end
end
return {schedule(), unpack(tell)}
