-- claim lets a unique key stand for a workflow that lives in another slot.
-- KEYS[1] unique key
-- ARGV[1] reference of the workflow, [2] ttl ms, [3] what the key holds and may be replaced, or ''
-- returns {what the key holds, ms since that was claimed}, or {''} when it stands for the workflow now
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local have = redis.call('GET', KEYS[1])
if have then
  local id, since = string.match(have, '^(%S+) (%d+)$')
  if id ~= ARGV[1] and have ~= ARGV[3] then return {have, string.format('%d', now - since)} end
end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. string.format('%d', now), 'PX', ARGV[2])
return {''}
