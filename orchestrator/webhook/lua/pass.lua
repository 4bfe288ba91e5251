-- Notes that deliveries of events were made, unless another relay did, and trims the stream of events.
-- KEYS: 1 id of the last event that was passed on, 2 events. ARGV: the id when the events were read, the id now, events to
-- keep, length of the stream when all of it was passed on or "" if some of it was not.
-- Returns 1, or 0 if another relay passed events on or there are no endpoints any more.
if redis.call("GET", KEYS[1]) ~= ARGV[1] then return 0 end
redis.call("SET", KEYS[1], ARGV[2])
if ARGV[4] ~= "" then
  local added = redis.call("XLEN", KEYS[2]) - tonumber(ARGV[4])
  redis.call("XTRIM", KEYS[2], "MAXLEN", "~", math.max(tonumber(ARGV[3]), added))
end
return 1
