-- claim assigns a unique key to a workflow in another slot.
-- KEYS[1] unique key
-- ARGV[1] reference of the workflow, [2] ttl ms, [3] the value of the key that may be replaced, or '', [4] references of the
-- workflows that must end before this one begins, separated by spaces, or ''
-- returns {value of the key, ms since it was claimed}, or {''} if the key belongs to the workflow now
local have = redis.call('GET', KEYS[1])
if have then
  local id, since = string.match(have, '^(%S+) .-(%d+)$')
  if id ~= ARGV[1] and have ~= ARGV[3] then return {have, whole(now - since)} end
end
redis.call('SET', KEYS[1], (ARGV[4] == '' and ARGV[1] or ARGV[1] .. ' ' .. ARGV[4]) .. ' ' .. whole(now), 'PX', ARGV[2])
return {''}
