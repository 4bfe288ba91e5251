-- look finds queues with ready nodes that nobody takes and, for a worker that met an error, deletes keys of the shard that nobody can
-- work with.
-- KEYS as in lib
-- ARGV[1] ms after which a wake-task that was asked for is looked for, [2] the worker or '', then queues
-- returns {wants, {queue, generation of a wake-task that is overdue, …}, {key that was deleted, …}}
local stale, deleted, patience = {}, {}, tonumber(ARGV[1])
local damaged = ARGV[2] ~= ''

-- check deletes a key that is not of its type.
local function check(key, kind)
  local is = redis.call('TYPE', key).ok
  if is == 'none' or is == kind then return end
  redis.call('DEL', key)
  deleted[#deleted + 1] = key
end

-- counts deletes a wake hash with anything but numbers.
local function counts(key, values)
  for i = 1, 7 do
    if values[i] and not string.match(values[i], '^%-?%d+$') then
      redis.call('DEL', key)
      deleted[#deleted + 1] = key
      return {}
    end
  end
  return values
end

if damaged then
  check(P .. 'agenda', 'zset')
  check(P .. 'holders', 'set')
  check(P .. 'lease:' .. ARGV[2], 'hash')
end
for i = 3, #ARGV do
  local q = ARGV[i]
  local k = P .. 'wake:' .. q
  if damaged then
    check(k, 'hash')
    check(P .. 'ring:n:' .. q, 'list')
    check(P .. 'ring:h:' .. q, 'list')
  end
  local h = redis.call('HMGET', k, 'p', 'g', 't', 'n', 'dn', 'dh', 's')
  if damaged then h = counts(k, h) end
  if math.abs(now - tonumber(h[3] or '0')) > patience and waiting(q) then
    if h[4] and h[4] ~= '0' then redis.call('HSET', k, 'n', '0') end -- whatever the count says
    if not h[1] then
      want(q)
    elseif math.abs(now - tonumber(h[1])) > patience then
      stale[#stale + 1] = q
      stale[#stale + 1] = h[2] or '0'
    end
  end
end
return {wants, stale, deleted}
