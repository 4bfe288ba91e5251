-- Sets the counters to what was recounted, unless the queue has changed since.
-- KEYS: common.lua. ARGV: changes of the queue when it was recounted, then
-- queued, in_progress, done, skipped, error.
-- Returns 1 set, 0 not.
always()
if tonumber(redis.call("HGET", META, "moves") or 0) ~= tonumber(ARGV[1]) then return 0 end
for i, name in ipairs({ "queued", "in_progress", "done", "skipped", "error" }) do
  redis.call("HSET", COUNTS, name, ARGV[i + 1])
end
return 1
