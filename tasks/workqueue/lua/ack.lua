-- Removes outputs that the reader has stored, and stores its notes.
-- KEYS: common.lua. ARGV: the first place in the stream that stays or "" for all, then per note its name and text; "" removes it.
-- Returns 1.
if ARGV[1] ~= "" then redis.call("XTRIM", OUT, "MINID", ARGV[1]) end
for i = 2, #ARGV, 2 do
  if ARGV[i + 1] == "" then
    redis.call("HDEL", READER, "note:" .. ARGV[i])
  else
    redis.call("HSET", READER, "note:" .. ARGV[i], ARGV[i + 1])
  end
end
return 1
