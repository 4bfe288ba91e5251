-- Records the relay of events, unless another relay did so concurrently, and trims the stream of events.
-- KEYS: 1 id of the last relayed event, 2 events.
-- ARGV: that id when the events were read, the new id, number of events to keep, length of the stream if all events were relayed
-- or "" otherwise.
-- Returns 1, or 0 after a concurrent relay or without endpoints.
if redis.call("GET", KEYS[1]) ~= ARGV[1] then return 0 end
redis.call("SET", KEYS[1], ARGV[2])
if ARGV[4] ~= "" then
  local added = redis.call("XLEN", KEYS[2]) - tonumber(ARGV[4])
  redis.call("XTRIM", KEYS[2], "MAXLEN", "~", math.max(tonumber(ARGV[3]), added))
end
return 1
