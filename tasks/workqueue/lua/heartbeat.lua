-- Extends leases that still hold.
-- KEYS: common.lua. ARGV: ttl ms, then per lease id, token.
-- Returns per lease 1 extended, 0 lost.
local out = {}
for i = 2, #ARGV, 2 do
  local r = load(ARGV[i])
  if r and not sealed and r.state == "i" and r.token == tonumber(ARGV[i + 1]) then
    redis.call("ZADD", LEASED, now + tonumber(ARGV[1]), ARGV[i])
    out[#out + 1] = 1
  else
    out[#out + 1] = 0
  end
end
return out
