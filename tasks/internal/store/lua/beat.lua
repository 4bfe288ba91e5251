-- beat says that a worker lives, and returns who else does.
-- KEYS[1] workers
-- ARGV[1] name, or '' only to read, [2] ms of silence after which a worker is dead
-- returns {now, live workers…}
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
if ARGV[1] ~= '' then redis.call('ZADD', KEYS[1], now, ARGV[1]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[2]))
local out = redis.call('ZRANGE', KEYS[1], 0, -1)
table.insert(out, 1, string.format('%d', now))
return out
