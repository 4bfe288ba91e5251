-- Adds an event, once.
-- KEYS: 1 stream of all events, 2 id of the last relayed event, 3 key of the once name, or the stream of all events for no name.
-- ARGV: type, job or "", data (JSON or ""), lifetime of the once name in ms.
-- Returns the id of the event, even if it was added before.
local once = KEYS[3] ~= KEYS[1]
local before = once and redis.call("GET", KEYS[3])
if before then return before end
local time = redis.call("TIME")
local now = string.format("%.0f", tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
local id = record(KEYS[1], nil, KEYS[2], ARGV[1], ARGV[2], now, ARGV[3])
if once then redis.call("SET", KEYS[3], id, "PX", ARGV[4]) end
return id
