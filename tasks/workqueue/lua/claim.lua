-- Makes a process the reader of the outputs, or keeps it so.
-- KEYS: common.lua. ARGV: owner, milliseconds that the claim holds.
-- Returns {fence, stale}, or {0, 0} if another process is the reader. The fence grows each time the reader changes.
-- Stale is 1 after the replacement of a reader that had not released the outputs, until keep.lua is told that this
-- was handled.
local at = redis.call("HMGET", READER, "owner", "until", "lasts")
local till = at[2] and number(at[2]) or -1
if at[3] and till > now + number(at[3]) then -- the clock was set back
  till = now + number(at[3])
  redis.call("HSET", READER, "until", string.format("%.0f", till))
end
if at[1] ~= ARGV[1] and till > now then return { 0, 0 } end
if at[1] ~= ARGV[1] then
  if till ~= 0 then redis.call("HSET", READER, "stale", 1) end
  redis.call("HINCRBY", READER, "fence", 1)
  redis.call("HSET", READER, "owner", ARGV[1])
end
redis.call("HSET", READER, "until", string.format("%.0f", now + tonumber(ARGV[2])), "lasts", ARGV[2])
return { tonumber(redis.call("HGET", READER, "fence")), number(redis.call("HGET", READER, "stale")) }
