-- Extends the lease of an assignment that is open.
-- KEYS: record of the assignment, due.
-- ARGV: id, ms of the lease from now, ms until it is due, usage so far or "" for
-- no change, mode or "" for no change.
-- Returns the unix ms until which the lease lasts, or 0 if it is not open.
if redis.call("HGET", KEYS[1], "state") ~= "open" then return 0 end
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local till = now + tonumber(ARGV[2])
redis.call("HSET", KEYS[1], "until", string.format("%.0f", till))
if ARGV[4] ~= "" then redis.call("HSET", KEYS[1], "usage", ARGV[4]) end
if ARGV[5] ~= "" then redis.call("HSET", KEYS[1], "mode", ARGV[5]) end
local due = math.min(now + tonumber(ARGV[3]), tonumber(redis.call("HGET", KEYS[1], "deadline") or "") or 0)
redis.call("ZADD", KEYS[2], string.format("%.0f", due), ARGV[1])
return till
