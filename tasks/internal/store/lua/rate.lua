-- rate lets a task start, at most n times in any period. Otherwise it returns a retry time: callers get different
-- times, one for each future start.
-- KEYS[1] times of the last starts (unix us), KEYS[2] the latest retry time
-- ARGV[1] n, [2] period us, [3] maximum distance of retry times from the first free start, us
-- returns us to wait, 0 for a start that is counted
local n, per = tonumber(ARGV[1]), tonumber(ARGV[2])
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local function whole(v) return string.format('%.0f', v) end
if tonumber(redis.call('LINDEX', KEYS[1], -1) or '0') > now then -- the clock was set back: as if all had started now
  local starts = redis.call('LLEN', KEYS[1])
  redis.call('DEL', KEYS[1], KEYS[2])
  for _ = 1, starts do redis.call('RPUSH', KEYS[1], whole(now)) end
  redis.call('PEXPIRE', KEYS[1], whole(math.ceil(per / 1000) + 1000))
end
local nth = redis.call('LINDEX', KEYS[1], -n)
local free = nth and tonumber(nth) + per or 0
if free <= now then
  redis.call('RPUSH', KEYS[1], whole(now))
  redis.call('LTRIM', KEYS[1], -1000, -1)
  redis.call('PEXPIRE', KEYS[1], whole(math.ceil(per / 1000) + 1000))
  return 0
end
if free - now <= math.min(per / n, 50000) then return math.ceil(free - now) end
local at = math.max(free, tonumber(redis.call('GET', KEYS[2]) or 0) + per / n)
if at > free + tonumber(ARGV[3]) then at = free end
redis.call('SET', KEYS[2], whole(at), 'PX', whole(math.ceil((at - now) / 1000) + 1000))
return math.ceil(at - now)
