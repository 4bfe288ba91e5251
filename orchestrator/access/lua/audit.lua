-- Appends an entry to the audit log and trims it by count and age.
-- KEYS: audit. ARGV: maximum number of entries, retention in ms, then field names and values.
-- Returns the ID of the entry.
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local entry = { "XADD", KEYS[1], "MAXLEN", "~", ARGV[1], "*" }
for i = 3, #ARGV do entry[#entry + 1] = ARGV[i] end
local id = redis.call(unpack(entry))
redis.call("XTRIM", KEYS[1], "MINID", "~", string.format("%.0f", now - tonumber(ARGV[2])))
redis.call("PEXPIRE", KEYS[1], ARGV[2])
return id
