-- sweep claims what is due in the agenda of a shard.
-- KEYS[1] agenda
-- ARGV[1] claim ms, [2] most entries
-- returns {now, time of the next entry or 0, entries in all, time until which they are claimed, due entries…}
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])
local claimed = string.format('%d', now + tonumber(ARGV[1]))
local head = redis.call('ZRANGE', KEYS[1], #due, #due, 'WITHSCORES')
local all = redis.call('ZCARD', KEYS[1])
local list = {}
for i, m in ipairs(due) do
  list[2 * i - 1] = claimed
  list[2 * i] = m
end
for i = 1, #list, 1000 do redis.call('ZADD', KEYS[1], unpack(list, i, math.min(i + 999, #list))) end
local next = head[2] and tonumber(head[2]) or 0
if #due > 0 and (next == 0 or next > tonumber(claimed)) then next = tonumber(claimed) end
local out = {string.format('%d', now), string.format('%d', next), all, claimed}
for _, m in ipairs(due) do out[#out + 1] = m end
return out
