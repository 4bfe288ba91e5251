-- Removes outputs that the reader has stored, and stores its notes.
-- KEYS: common.lua. ARGV: owner, fence, the first place in the stream that stays
-- or "" for all, then per note its name and text; "" removes it.
-- Returns 1, or 0 when the claim was lost, and then changes nothing.
local at = redis.call("HMGET", READER, "owner", "fence")
if at[1] ~= ARGV[1] or at[2] ~= ARGV[2] then return 0 end
if ARGV[3] ~= "" then redis.call("XTRIM", OUT, "MINID", ARGV[3]) end
for i = 4, #ARGV, 2 do
  if ARGV[i + 1] == "" then
    redis.call("HDEL", READER, "note:" .. ARGV[i])
  else
    redis.call("HSET", READER, "note:" .. ARGV[i], ARGV[i + 1])
  end
end
return 1
