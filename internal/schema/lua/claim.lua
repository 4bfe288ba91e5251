-- Restricts a hash slot to the process with a token and later ones; scripts check the fence.
-- KEYS: 1 fence. ARGV: token.
-- Returns 1, or 0 if a later process has claimed the slot.
if (tonumber(redis.call("GET", KEYS[1]) or "") or 0) > tonumber(ARGV[1]) then return 0 end
redis.call("SET", KEYS[1], ARGV[1])
return 1
