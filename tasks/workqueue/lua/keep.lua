-- Extends a claim on the outputs, or releases it.
-- KEYS: common.lua. ARGV: owner, fence, milliseconds that the claim holds from
-- now or 0 to release it, 1 when no earlier reader can do harm any more.
-- Returns 1, or 0 when the claim was lost, and then changes nothing.
local at = redis.call("HMGET", READER, "owner", "fence")
if at[1] ~= ARGV[1] or at[2] ~= ARGV[2] then return 0 end
local till = tonumber(ARGV[3])
if till > 0 then till = now + till end
redis.call("HSET", READER, "until", string.format("%.0f", till), "lasts", ARGV[3])
if ARGV[4] == "1" then redis.call("HSET", READER, "stale", 0) end
return 1
