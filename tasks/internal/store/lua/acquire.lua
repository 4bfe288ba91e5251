-- acquire takes a place for a node whose handler is about to be called, or lets the node wait for one. The worker of a node
-- that waits delays it with turn. A repeated call returns the same, or has a place by now.
-- KEYS as in lib
-- ARGV[1] and [2] as in places, [3] the node '<shard> <workflow>/<node>', [4] distinguishes its attempts
-- returns {1 for a place or 0, ms until the next entry of the agenda for the limit or -1, steps as in places…}
local node = ARGV[3]
local place = node .. ' ' .. ARGV[4]
local has = redis.call('ZSCORE', placesKey, place)
if not has and stored then
  grant() -- the nodes that wait are first
  has = redis.call('ZREM', reservedKey, node) == 1
  for i = 1, #tell, 3 do
    if tell[i] == node then
      for _ = 1, 3 do table.remove(tell, i) end
      break
    end
  end
end
has = has or free() > 0
if not has and stored and held <= now then
  -- The node that has the oldest reservation has not come yet. It becomes the first node that waits.
  local oldest = redis.call('ZRANGE', reservedKey, 0, 0, 'WITHSCORES')
  if oldest[2] and oldest[2] - RESERVED + TAKE_OVER <= now then
    redis.call('ZREM', reservedKey, oldest[1])
    redis.call('ZADD', waitingKey, whole((oldest[2] - RESERVED) * 1000), oldest[1])
    has = true
  end
end
if has then
  -- The node can be among the waiting ones: delayed by a worker that took it over from the caller. If it is not delayed, it loses its
  -- reservation when its turn comes.
  -- A place of a rate ends a millisecond late, because now is rounded down.
  redis.call('ZADD', placesKey, whole(per > 0 and now + per + 1 or now + LEASE), place)
  redis.call('PEXPIRE', placesKey, per > 0 and whole(per + 1000) or 6 * LEASE)
  return {1, stored and schedule() or '-1', unpack(tell)}
end
redis.call('ZADD', waitingKey, 'NX', whole(us), node)
return {0, schedule(), unpack(tell)}
