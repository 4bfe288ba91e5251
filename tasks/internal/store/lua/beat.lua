-- beat says that a worker lives, and returns who else does and who is dead: silent, and found so by two looks.
-- KEYS[1] workers, [2] those that were found silent
-- ARGV[1] name, or '' only to read, [2] ms of silence, [3] ms between two looks that count
-- returns {number of the dead n, n dead workers…, live workers…}; the dead are told to everybody until they are signed off
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function whole(n) return string.format('%d', n) end
-- A beat from the future is one from before the clock was set back.
local silent, future = whole(now - ARGV[2]), whole(now + ARGV[2])
if ARGV[1] ~= '' then
  local added = redis.pcall('ZADD', KEYS[1], whole(now), ARGV[1])
  if type(added) == 'table' and added.err then -- a full Redis refuses a script's first write only
    redis.call('ZREM', KEYS[1], '')
    redis.call('ZADD', KEYS[1], whole(now), ARGV[1])
  end
  redis.call('HDEL', KEYS[2], ARGV[1])
end
local dead, live = {}, redis.call('ZRANGEBYSCORE', KEYS[1], silent, future)
if ARGV[1] ~= '' then
  local others = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. silent)
  for _, w in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. future, '+inf')) do others[#others + 1] = w end
  for _, w in ipairs(others) do
    local since = redis.call('HGET', KEYS[2], w)
    if not since then
      redis.call('HSET', KEYS[2], w, whole(now))
    elseif math.abs(now - since) >= tonumber(ARGV[3]) then
      dead[#dead + 1] = w
    end
  end
end
local out = {whole(#dead)}
for _, w in ipairs(dead) do out[#out + 1] = w end
for _, w in ipairs(live) do out[#out + 1] = w end
return out
