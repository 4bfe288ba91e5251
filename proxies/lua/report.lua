-- Records what became of requests to one site, and takes a proxy that is dead out of the pool.
-- A failure counts once for all requests that were under way when it was seen, and three in a row are the end.
-- KEYS[1] records  [2] changes of the records  [3] version  [4] health of all sites  [5] changes of that health  [6] archive  [7] archived
--     [8] health of the site  [9] changes of that health
-- ARGV[1] now, unix ms  [2] consecutive failures that are the end; then for each request:
--     proxy id, outcome (ok, fail, slow, ban or wait), begun at (unix ms), latency in ms, cooldown in ms or -1 for the usual one, a random number in [0, 1)
-- Returns the ids that were taken out.
local now, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local dead = {}

local function load(key, id)
  local text = redis.call('HGET', key, id)
  if not text then
    return { ok = 0.5, n = 0, fails = 0, lastok = 0, lastfail = 0, till = 0, lat = 0 }
  end
  local a, b, c, d, e, f, g = string.match(text, '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)')
  return { ok = tonumber(a), n = tonumber(b), fails = tonumber(c), lastok = tonumber(d), lastfail = tonumber(e), till = tonumber(f), lat = tonumber(g) }
end

local function save(key, changes, id, h)
  redis.call('HSET', key, id, string.format('%.6f %d %.1f %.0f %.0f %.0f %.1f', h.ok, h.n, h.fails, h.lastok, h.lastfail, h.till, h.lat))
  redis.call('ZADD', changes, redis.call('INCR', KEYS[3]), id)
end

local function succeed(h, latency)
  h.ok = h.ok + 0.15 * (1 - h.ok)
  h.n, h.fails, h.till, h.lastok = h.n + 1, 0, 0, now
  if latency > 0 then
    if h.lat == 0 then h.lat = latency else h.lat = h.lat * 0.85 + latency * 0.15 end
  end
end

local function fail(h, weight, begun, cooldown, random, cools)
  h.ok = h.ok - 0.15 * weight * h.ok
  h.n = h.n + 1
  if begun > h.lastfail then -- else it was under way already when the last failure was seen
    h.fails = h.fails + weight
    h.lastfail = now
    if cools then
      if cooldown < 0 then cooldown = math.min(1800000, 30000 * 2 ^ h.fails) * random end
      h.till = math.max(h.till, now + cooldown)
    end
  end
end

for i = 3, #ARGV, 6 do
  local id, outcome = ARGV[i], ARGV[i + 1]
  local begun, latency, cooldown, random = tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5])
  local record = redis.call('HGET', KEYS[1], id)
  if record then
    local all, site = load(KEYS[4], id), load(KEYS[8], id)
    if outcome == 'fail' or outcome == 'slow' then
      local weight = 1
      if outcome == 'slow' then weight = 0.5 end
      fail(all, weight, begun, cooldown, random, true)
      fail(site, weight, begun, cooldown, random, false)
    else -- the proxy did its work, whatever the site thinks of it
      succeed(all, latency)
      if outcome == 'ban' then
        fail(site, 1, begun, cooldown, random, true)
      elseif outcome == 'wait' then
        site.till = math.max(site.till, now + math.max(cooldown, 0))
      else
        succeed(site, latency)
      end
    end
    save(KEYS[8], KEYS[9], id, site)
    if all.fails >= limit or (all.ok < 0.05 and all.n >= 8) then
      redis.call('HDEL', KEYS[1], id)
      redis.call('HDEL', KEYS[4], id)
      redis.call('ZREM', KEYS[5], id)
      redis.call('ZADD', KEYS[2], redis.call('INCR', KEYS[3]), id)
      redis.call('ZADD', KEYS[6], now, id)
      redis.call('HSET', KEYS[7], id, record)
      dead[#dead + 1] = id
    else
      save(KEYS[4], KEYS[5], id, all)
    end
  end
end
redis.call('EXPIRE', KEYS[8], 604800)
redis.call('EXPIRE', KEYS[9], 604800)
return dead
