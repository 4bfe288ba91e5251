-- Adds proxies that passed a check to the pool. A new record replaces the old one; the health is kept, and the check
-- counts as a success.
-- KEYS[1] records  [2] health of all sites
-- ARGV[1] now, unix ms; then for each proxy: id, record as JSON (opaque), latency in ms
-- Returns the number of proxies that are new in the pool.
local now = tonumber(ARGV[1])
local fresh = 0
for i = 2, #ARGV, 3 do
  local id, record, latency = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  fresh = fresh + redis.call('HSET', KEYS[1], id, record)
  local ok, n, lat = 0.5, 0, latency
  local health = redis.call('HGET', KEYS[2], id)
  if health then
    local a, b, _, _, _, _, c = string.match(health, '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)')
    a, b, c = tonumber(a or ''), tonumber(b or ''), tonumber(c or '')
    if a and b and c then ok, n, lat = a, b, c * 0.7 + latency * 0.3 end -- a damaged health is replaced
  end
  ok = ok + 0.15 * (1 - ok)
  redis.call('HSET', KEYS[2], id, string.format('%.6f %d 0 %.0f 0 0 %.1f', ok, n + 1, now, lat))
end
return fresh
