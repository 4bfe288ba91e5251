-- Sets the counters to what was recounted, unless the queue has changed since.
-- KEYS: common.lua. ARGV: changes of the queue when it was recounted, then
-- queued, in_progress, done, skipped, error, 1 to count by lane from now on or
-- else 0, then per lane and state with items: state, lane, items.
-- Returns 1 set, 0 not.
if number(redis.call("HGET", META, "moves")) ~= tonumber(ARGV[1]) then return 0 end
for i, name in ipairs({ "queued", "in_progress", "done", "skipped", "error" }) do
  redis.call("HSET", COUNTS, name, ARGV[i + 1])
end
if ARGV[7] == "1" then
  redis.call("HSET", META, "v", 2, "lanes", 1)
  byLane = "1"
end
for _, name in ipairs(redis.call("HKEYS", COUNTS)) do
  if string.find(name, "\0", 1, true) then redis.call("HDEL", COUNTS, name) end
end
if byLane then
  for i = 8, #ARGV, 3 do redis.call("HSET", COUNTS, ARGV[i] .. "\0" .. ARGV[i + 1], ARGV[i + 2]) end
end
return 1
