-- Notes that a job may have work for a role, now or later.
-- KEYS: 1 record, 2 ready, 3 due, 4 wake. ARGV: id, ms until then (0 now), its place in ready if it is known.
-- Returns 1, or 0 if the job is not processing or is paused.
local place = ARGV[3] ~= "" and ARGV[3] or rank(KEYS[1])
if not place then return 0 end
local wait = tonumber(ARGV[2])
if wait <= 0 then
  redis.call("ZADD", KEYS[2], place, ARGV[1])
  wakeOne(KEYS[4])
  return 1
end
clock()
local at = now + wait
local before = redis.call("ZSCORE", KEYS[3], ARGV[1])
if not before or tonumber(before) > at then redis.call("ZADD", KEYS[3], at, ARGV[1]) end
return 1
