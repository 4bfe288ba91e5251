-- Counts an agent that has gone while it worked on an item.
-- KEYS: broke. ARGV: none.
-- Returns how many there were.
local n = redis.call("INCR", KEYS[1])
redis.call("EXPIRE", KEYS[1], 86400)
return n
