-- beat says that a worker lives, and returns who else does and who has fallen silent.
-- KEYS[1] workers
-- ARGV[1] name, or '' only to read, [2] ms of silence after which a worker is dead, [3] 1 to take the dead out
-- returns {number of the dead n, n dead workers…, live workers…}; to the one that takes them out the
-- dead are told, once
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local silent = '(' .. string.format('%d', now - tonumber(ARGV[2]))
local out = {}
if ARGV[1] ~= '' then
  local added = redis.pcall('ZADD', KEYS[1], now, ARGV[1])
  if type(added) == 'table' and added.err then -- a full Redis refuses a script's first write only
    redis.call('ZREM', KEYS[1], '')
    redis.call('ZADD', KEYS[1], now, ARGV[1])
  end
end
if ARGV[3] == '1' then
  out = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', silent)
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', silent)
end
table.insert(out, 1, string.format('%d', #out))
for _, w in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], string.sub(silent, 2), '+inf')) do out[#out + 1] = w end
return out
