-- sweep claims what is due in the agenda of a shard.
-- KEYS[1] agenda
-- ARGV[1] claim ms, [2] most entries
-- returns {now, time of the next entry or 0, due entries…}
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])
for _, m in ipairs(due) do redis.call('ZADD', KEYS[1], now + tonumber(ARGV[1]), m) end
local head = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local out = {string.format('%d', now), head[2] and string.format('%d', head[2]) or '0'}
for _, m in ipairs(due) do out[#out + 1] = m end
return out
