-- Records the outcomes of requests to one site, and removes dead proxies from the pool.
-- A failure counts once for all requests that were in flight when it occurred; [2] consecutive failures remove the proxy.
-- KEYS[1] records  [2] health of all sites  [3] health of the site
-- ARGV[1] now, unix ms  [2] consecutive failures that remove a proxy; then for each request:
--     proxy id, outcome, start time (unix ms), latency in ms, cooldown in ms or -1 for the default, a random number in [0, 1)
--     Outcomes: ok, fail, slow, ban, wait; late: a ban recorded as ok before; miss: another proxy reached the target; hang: a
--     miss by a timeout; useless: a failure at this site only
-- Returns the ids of removed proxies.
-- Only members have a health of all sites; reports on other ids are dropped. At most 150 requests per call.
local now, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local ids, at = {}, {}
for i = 3, #ARGV, 6 do
  local id = ARGV[i]
  if not at[id] then
    ids[#ids + 1] = id
    at[id] = #ids
  end
end
if #ids == 0 then return {} end

-- A damaged health is replaced by the initial one.
local function parse(text)
  local v = { string.match(text or '', '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) ?(%S*)') }
  for i = 1, 7 do
    if not tonumber(v[i] or '') then return { ok = 0.5, n = 0, fails = 0, lastok = 0, lastfail = 0, till = 0, lat = 0, was = 0 } end
  end
  local a, b, c, d, e, f, g, h = unpack(v)
  return { ok = tonumber(a), n = tonumber(b), fails = tonumber(c), lastok = tonumber(d), lastfail = tonumber(e), till = tonumber(f), lat = tonumber(g), was = tonumber(h) or 0 }
end

-- Reads and writes are batched: calls dominate the run time.
local alls, sites = redis.call('HMGET', KEYS[2], unpack(ids)), redis.call('HMGET', KEYS[3], unpack(ids))

-- was is the number of consecutive failures before the last success, which a late ban may replace. At a site, the
-- response to a request that was in flight at the last failure resets neither the failures nor the cooldown.
local function succeed(h, latency, begun, patient)
  local stale = patient and begun <= h.lastfail
  if stale then
    h.was = 0
  elseif h.fails > 0 then
    h.was = h.fails
  elseif begun > h.lastok then
    h.was = 0
  end
  h.ok = h.ok + 0.15 * (1 - h.ok)
  h.n, h.lastok = h.n + 1, now
  if not stale then h.fails, h.till = 0, 0 end
  if latency > 0 then
    if h.lat == 0 then h.lat = latency else h.lat = h.lat * 0.85 + latency * 0.15 end
  end
end

local function fail(h, weight, begun, cooldown, random, cools)
  h.ok = h.ok - 0.15 * weight * h.ok
  h.n = h.n + 1
  if begun > h.lastfail then -- otherwise it was in flight at the last failure
    h.fails = h.fails + weight
    h.lastfail = now
    if cools then
      if cooldown < 0 then cooldown = math.min(1800000, 30000 * 2 ^ h.fails) * random end
      h.till = math.max(h.till, now + cooldown)
    end
  end
end

local members = {}
for k, id in ipairs(ids) do
  if alls[k] then members[k] = { all = parse(alls[k]), site = parse(sites[k]) } end
end
for i = 3, #ARGV, 6 do
  local m, outcome = members[at[ARGV[i]]], ARGV[i + 1]
  if m and not m.dead then
    local begun, latency, cooldown, random = tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5])
    if outcome == 'fail' or outcome == 'slow' then
      local weight = 1
      if outcome == 'slow' then weight = 0.5 end
      fail(m.all, weight, begun, cooldown, random, true)
      fail(m.site, weight, begun, cooldown, random, false)
      m.dead = m.all.fails >= limit or (m.all.ok < 0.05 and m.all.n >= 8)
    elseif outcome == 'miss' or outcome == 'hang' then
      -- The site may reject this proxy only: that counts as a single failure over all sites.
      local weight = 1
      if outcome == 'hang' then weight = 0.5 end
      if m.site.fails == 0 then fail(m.all, weight, begun, cooldown, random, true) end
      fail(m.site, weight, begun, cooldown, random, true)
      m.dead = m.all.fails >= limit or (m.all.ok < 0.05 and m.all.n >= 8)
    elseif outcome == 'useless' then
      fail(m.site, 1, begun, cooldown, random, true)
    elseif outcome == 'late' then
      if begun <= m.site.lastok then m.site.fails, m.site.was = math.max(m.site.fails, m.site.was), 0 end
      fail(m.site, 1, begun, cooldown, random, true)
    else -- the proxy worked, whatever the response of the site
      succeed(m.all, latency, begun, false)
      if outcome == 'ban' then
        fail(m.site, 1, begun, cooldown, random, true)
      elseif outcome == 'wait' then
        m.site.till, m.site.lastfail = math.max(m.site.till, now + math.max(cooldown, 0)), now
      else
        succeed(m.site, latency, begun, true)
      end
    end
  end
end

local function text(h)
  local line = string.format('%.6f %d %.1f %.0f %.0f %.0f %.1f', h.ok, h.n, h.fails, h.lastok, h.lastfail, h.till, h.lat)
  if h.was > 0 then line = string.format('%s %.1f', line, h.was) end
  return line
end

local dead, healths, siteHealths = {}, {}, {}
for k, id in ipairs(ids) do
  local m = members[k]
  if m then
    siteHealths[#siteHealths + 1], siteHealths[#siteHealths + 2] = id, text(m.site)
    if m.dead then
      redis.call('HDEL', KEYS[1], id)
      redis.call('HDEL', KEYS[2], id)
      dead[#dead + 1] = id
    else
      healths[#healths + 1], healths[#healths + 2] = id, text(m.all)
    end
  end
end
if #siteHealths == 0 then return dead end
if #healths > 0 then redis.call('HSET', KEYS[2], unpack(healths)) end
redis.call('HSET', KEYS[3], unpack(siteHealths))
redis.call('EXPIRE', KEYS[3], 86400)
return dead
