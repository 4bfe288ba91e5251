-- look finds queues with ready nodes that no worker takes. For a worker that met an error it also deletes damaged keys.
-- KEYS as in lib
-- ARGV[1] ms: a queue from which nothing was taken for longer has no worker, and a wake-task that has
-- been pending for longer is overdue, [2] the worker or '', then queues
-- returns {wants, {queue, generation of an overdue wake-task, …}, {deleted key, …}}
local stale, deleted, patience = {}, {}, tonumber(ARGV[1])
local damaged = ARGV[2] ~= ''

-- check deletes a key that does not have the type it must have.
local function check(key, kind)
  local is = redis.call('TYPE', key).ok
  if is == 'none' or is == kind then return end
  redis.call('DEL', key)
  deleted[#deleted + 1] = key
end

-- counts deletes a wake hash if a value is not a number.
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
    if h[4] and h[4] ~= '0' then redis.call('HSET', k, 'n', '0') end -- no slot takes, so the count is wrong
    if not h[1] then
      want(q)
    elseif math.abs(now - tonumber(h[1])) > patience then
      stale[#stale + 1] = q
      stale[#stale + 1] = h[2] or '0'
    end
  end
end
return {wants, stale, deleted}
